"""An application of Celery. The environment names its broker and its queue, and has the transport options."""

import os
from ast import literal_eval
from pathlib import Path
from threading import Event

from celery import Celery

app = Celery("shop", broker=os.environ["BROKER"])
app.conf.update(
    task_default_queue=os.environ["QUEUE"],
    broker_transport_options=literal_eval(os.environ["TRANSPORT_OPTIONS"]),
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,
    worker_enable_remote_control=False,
    worker_redirect_stdouts=False,
)


@app.task
def invoice(order):
    """The first run in this directory lasts until its worker is killed."""
    try:
        Path("begun").touch(exist_ok=False)
    except FileExistsError:
        print(f"invoice for order {order}", flush=True)
        return
    print(f"begun {order}", flush=True)
    Event().wait()


@app.task(bind=True)
def flaky(self, order):
    """Fails twice."""
    attempt = self.request.properties["delivery_info"]["sqs_message"]["Attributes"]["ApproximateReceiveCount"]
    print(f"attempt {attempt} of {order}", flush=True)
    if attempt != "3":
        raise ConnectionError
