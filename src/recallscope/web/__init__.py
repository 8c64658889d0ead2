"""The explorer: a local web page over laws, stores and models (`pip install 'recallscope[web]'`).

What it shows is computed in the packages below; here it is served.
"""
