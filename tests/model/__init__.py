"""The protocol of docs/protocol.md, explored exhaustively: every interleaving of every step, with and without mishaps.

`python -m tests.model` prints the table of runs, `--all` adds the long ones, `--roads` the shortest path to each broken
promise.

Read `rules.py` (what can be taken away), `service_model.py` (the steps of each request), `protocol_model.py` (receivers, sweepers, mishaps, and
the promises checked), then `runs.py` (what is expected of each run). `state.py` and `canonical.py` keep the states few;
`explorer.py` knows nothing of messages.

Checked in every state or step: no two receivers hold live promises, no promise outlives its lock, no settle touches the lock
of another or takes effect twice, no completed message becomes available again, no retry of an effective settle is
answered lock-lost, lock-lost is final, and from everywhere a message can still be completed without the help of a
fault.

Not modelled: batches, transactions over several messages, counters and dead-lettering (rules of the domain that choose
the state after a release), the cause that an expiry leaves in its tombstone (it is reported and decides nothing).
"""
