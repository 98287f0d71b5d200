"""The simplest broker: a session, an ORM object and a transaction for each request.

It keeps the same promise as Peeklock's core: send, receive under a lock, complete by token. It is compared
with Peeklock, over `NAIVE_DATABASE_URL`, an SQLAlchemy URL of an async driver.
"""

import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import event
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlmodel import JSON, Column, Field, SQLModel, select
from sqlmodel.ext.asyncio.session import AsyncSession

URL = os.environ["NAIVE_DATABASE_URL"]
IS_SQLITE = URL.startswith("sqlite")

engine = create_async_engine(URL, **({} if IS_SQLITE else {"pool_size": 16, "max_overflow": 0}))
sessions = async_sessionmaker(engine, class_=AsyncSession, expire_on_commit=False)

if IS_SQLITE:

    @event.listens_for(engine.sync_engine, "connect")
    def durable(connection: Any, _record: Any) -> None:
        """The same durability settings that Peeklock uses on SQLite, and transactions that begin with `begin`."""
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA busy_timeout = 30000")

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Any) -> None:
        """Begin as the only writer, because SQLite has no row locks to separate two receivers."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class NaiveMessage(SQLModel, table=True):
    """A message, with its lock in the same row."""

    id: int | None = Field(default=None, primary_key=True)
    queue: str = Field(index=True)
    message_id: str
    body: Any = Field(sa_column=Column(JSON))
    state: str = Field(default="available", index=True)
    priority: int = 4
    delivery_count: int = 0
    lock_token: str | None = None
    locked_until: float | None = None


class NewMessage(BaseModel):
    """The request body of a send."""

    body: Any
    message_id: str | None = None
    priority: int = 4


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Create the table."""
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.tables["naivemessage"].create, checkfirst=True)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def session() -> AsyncIterator[AsyncSession]:
    """A session for each request."""
    async with sessions() as one:
        yield one


Session = Annotated[AsyncSession, Depends(session)]


@app.post("/v1/queues/{queue}/messages", status_code=201)
async def send_message(queue: str, new_message: NewMessage, db: Session) -> NaiveMessage:
    """Store a message."""
    message = NaiveMessage(
        queue=queue,
        message_id=new_message.message_id or uuid.uuid4().hex,
        body=new_message.body,
        priority=new_message.priority,
    )
    db.add(message)
    await db.commit()
    return message


@app.post("/v1/queues/{queue}/messages/receive")
async def receive_messages(queue: str, db: Session) -> dict[str, list[NaiveMessage]]:
    """Lock the next message."""
    wanted = (
        select(NaiveMessage)
        .where(NaiveMessage.queue == queue, NaiveMessage.state == "available")
        .order_by(NaiveMessage.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    message = (await db.exec(wanted)).first()
    if message is None:
        return {"messages": []}
    message.state = "locked"
    message.delivery_count += 1
    message.lock_token = f"{message.id}.{uuid.uuid4().hex}"
    message.locked_until = time.time() + 30
    db.add(message)
    await db.commit()
    return {"messages": [message]}


@app.post("/v1/queues/{queue}/locks/{lock_token}/complete")
async def complete_lock(queue: str, lock_token: str, db: Session) -> dict[str, str]:
    """Remove a message under its token."""
    held = select(NaiveMessage).where(NaiveMessage.id == int(lock_token.partition(".")[0]), NaiveMessage.queue == queue)
    message = (await db.exec(held)).first()
    if message is None or message.lock_token != lock_token or (message.locked_until or 0) < time.time():
        raise HTTPException(410, "lock lost")
    await db.delete(message)
    await db.commit()
    return {"outcome": "completed"}
