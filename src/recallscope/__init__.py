"""recallscope: how much can a recurrent sequence model remember, and why?"""
