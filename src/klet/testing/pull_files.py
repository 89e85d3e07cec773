"""The files of pulled images in memory: they outlive the agent that writes them."""

from klet.images.pulled.files import PullDirectory


class MemoryPullFiles:
    """What is in the directories."""

    def __init__(self) -> None:
        self.content: dict[tuple[PullDirectory, str], bytes] = {}

    async def names(self, directory: PullDirectory) -> frozenset[str] | None:
        return frozenset(name for place, name in self.content if place is directory)

    async def read(self, directory: PullDirectory, name: str) -> bytes | None:
        return self.content.get((directory, name))

    async def write(self, directory: PullDirectory, name: str, data: bytes) -> None:
        self.content[directory, name] = data

    async def remove(self, directory: PullDirectory, name: str) -> None:
        self.content.pop((directory, name), None)
