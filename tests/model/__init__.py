"""The protocol of docs/protocol.md, explored exhaustively: every interleaving of every step, with and without faults.

`python -m tests.model` prints the table of runs, `--all` adds the long ones, `--paths` the shortest path to each broken
promise.

Read `rules.py` (the rules that a run may remove), `service_model.py` (the steps of each request), `protocol_model.py`
(receivers, sweepers, faults, and the promises that are checked), then `runs.py` (the expected result of each run).
`state.py` and `canonical.py` bound the number of states. `explorer.py` knows nothing of messages.

Checked in every state or step: no two receivers hold live promises, no promise outlives its lock, no settlement touches
the lock of another or takes effect twice, no completed message becomes available again, no settlement that took effect
is answered lock-lost, lock-lost is final, and from every state the message can still be completed without a fault.

Not modelled: batches, transactions over several messages, counters and dead-lettering (rules of the domain that choose
the state after a release), the cause that an expiry leaves in its tombstone (it is reported and decides nothing).
"""
