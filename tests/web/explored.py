"""Made-up runs for the explorer, the name it is called by, and the explorer as a server."""

import contextlib
import threading

import uvicorn

from made_records import made
from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.records import Evaluation
from recallscope.specs import RunSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.theory.law import find_law
from recallscope.web.server import listen, make_app

HOST = "127.0.0.1:8000"


def made_up(embed_dim, state_dim, seed=0):
    """A run whose accuracy is what a law says."""
    task, model = MQARSpec(vocab_size=512, num_facts=16), LinearMambaSpec(embed_dim=embed_dim, state_dim=state_dim)
    p = float(find_law("unified-mv")(vocab_size=512, num_facts=16, embed_dim=embed_dim, state_dim=state_dim))
    spec = RunSpec(task=task, model=model, seed=seed)
    history = [Evaluation(step=250 * k, loss=4.0 / k, accuracy=p * k / 8) for k in range(1, 9)]
    return made(spec, p, test_queries=160_000, steps=2000, state_entries=model.state_entries, history=history)


@contextlib.contextmanager
def serving(store_set, config=None):
    """The socket that the explorer listens on, in a thread of its own."""
    listener, hosts = listen("127.0.0.1", 0)
    app, quick = (
        make_app(store_set, hosts),
        {"log_level": "critical", "lifespan": "off", "timeout_graceful_shutdown": 1},
    )
    running = uvicorn.Server(config(app) if config else uvicorn.Config(app, **quick))
    app.state.ending = lambda: running.should_exit
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener
    finally:
        running.should_exit = True
        thread.join()
        listener.close()


def address_of(listener):
    return f"http://127.0.0.1:{listener.getsockname()[1]}/"
