"""The explorer: a local web page over laws, stores and models. The server needs `pip install 'recallscope[web]'`."""
