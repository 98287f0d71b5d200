"""Asks sentinels for the master of a service, and reports why each of them names none."""

from typing import Any

from redis.asyncio import Redis
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import TimeoutError as NoAnswer


class Sentinels(Sentinel):
    """The sentinels of a service. redis-py's own error has the settings of its clients instead of the reasons."""

    sentinels: list[Any]

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the address of the master. The sentinel that named it last is asked first.

        Raises `MasterNotFoundError` with the reason of each sentinel.
        """
        reasons: list[str] = []
        for number, sentinel in enumerate(self.sentinels):
            try:
                masters: dict[str, dict[str, Any]] = await sentinel.sentinel_masters()
            except (NoConnection, NoAnswer) as error:
                reasons.append(f"{_address(sentinel)}: {error}")
                continue
            master = masters.get(service_name)
            if master and _is_usable(master):
                self.sentinels[0], self.sentinels[number] = sentinel, self.sentinels[0]
                return master["ip"], master["port"]
            reasons.append(
                f"{_address(sentinel)}: it {'reports the master as down' if master else 'does not know the service'}"
            )
        raise MasterNotFoundError(f"No sentinel names a master of {service_name}. ({'; '.join(reasons)})")


def _is_usable(master: dict[str, Any]) -> bool:
    """Return whether neither this sentinel nor a majority of them reports the master as down."""
    return bool(master["is_master"]) and not master["is_sdown"] and not master["is_odown"]


def _address(sentinel: "Redis") -> str:
    options: dict[str, Any] = sentinel.connection_pool.connection_kwargs
    return f"{options['host']}:{options['port']}"
