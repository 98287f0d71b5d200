"""The client of a cluster reads the nodes again after any failure."""

import pytest

from app.locks.cluster_client import _ClusterClient


class OddCluster:
    """A cluster whose nodes answer with what redis-py does not understand, once."""

    def __init__(self) -> None:
        self.nodes_manager = self
        self.reads = 0

    async def initialize(self, **_options: object) -> None:
        self.reads += 1
        if self.reads == 1:
            raise IndexError("list index out of range")

    async def aclose(self) -> None: ...


async def test_an_odd_answer_of_a_node_is_not_kept() -> None:
    cluster = OddCluster()
    client = _ClusterClient(cluster, [("localhost", 7000)], timeout_seconds=1)
    with pytest.raises(IndexError):
        await client._ensure_nodes()
    await client._ensure_nodes()
    assert cluster.reads == 3
    await client.aclose()
