"""A typed FastAPI endpoint that stores nothing: the reference for one send."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class NewMessage(BaseModel):
    """The request body of the endpoint."""

    body: Any
    message_id: str | None = None
    priority: int = 4
    properties: dict[str, str] = {}


class Receipt(BaseModel):
    """The response body of the endpoint."""

    sequence_number: int
    message_id: str
    state: str


@app.post("/v1/queues/{queue}/messages", status_code=201)
async def send_message(queue: str, new_message: NewMessage) -> Receipt:
    """Answer as if the message had been stored."""
    return Receipt(sequence_number=1, message_id=new_message.message_id or queue, state="available")
