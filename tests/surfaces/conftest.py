"""A command line to call: what it returns, prints and complains."""

import pytest

from recallscope.cli.main import main


@pytest.fixture
def run(capsys):
    def call(*arguments):
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as stop:  # the parser's own way out
            code = stop.code
        out, err = capsys.readouterr()
        return code, out, err

    return call
