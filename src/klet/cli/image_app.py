"""The options of `klet images`, `klet image …` and `klet disk`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from klet.api.klet_v1 import field_names
from klet.api.klet_v1_images import ImageGcPreview
from klet.cli.client import AgentClient
from klet.cli.images import ImageFormat, print_disk, print_images
from klet.cli.node.node import find_node
from klet.cli.node.paths import DEFAULT_STATE
from klet.cli.node_runtime import NodeRuntime, find_runtime

EXAMPLES = """Examples:

`klet image pull registry.example.com/team/app:1`: pulls it before a pod needs it.

`klet image load app.tar`: an archive of `docker save` or of OCI, also compressed.

`docker save app:1 | klet image load -`: without a file.
"""
StateDir = Annotated[
    Path, typer.Option("--state-dir", envvar="KLET_STATE_DIR", help="Directory of the node; one directory is one node.")
]
RuntimeEndpoint = Annotated[
    str, typer.Option("--runtime-endpoint", metavar="SOCKET", help="The runtime's socket; the node's without it.")
]
BaseName = Annotated[
    str, typer.Option("--name", metavar="REPOSITORY", help="The repository of images that have a tag only.")
]
ClientMaker: TypeAlias = Callable[[Path], AgentClient]


def add_image_commands(app: typer.Typer, make_client: ClientMaker) -> None:
    """Add the commands about images and their disk."""
    group = typer.Typer(no_args_is_help=True, help="Pull, load and remove images.", epilog=EXAMPLES)

    def runtime_of(state_dir: Path, endpoint: str) -> NodeRuntime:
        return find_runtime(find_node(state_dir), make_client(state_dir), endpoint=endpoint)

    @app.command()
    def images(
        output: Annotated[
            ImageFormat, typer.Option("--output", "-o", metavar="table|wide|json", help="Another form than the table.")
        ] = ImageFormat.TABLE,
        state_dir: StateDir = DEFAULT_STATE,
    ) -> None:
        """List the images of the node: their size, who uses them, and since when they are unused."""
        print_images(make_client(state_dir), form=output)

    @app.command()
    def disk(
        gc_preview: Annotated[
            bool, typer.Option("--gc-preview", help="Show what image garbage collection would do with each image now.")
        ] = False,
        output: Annotated[
            str,
            typer.Option("--output", "-o", metavar="json", help=f"Print JSON with {field_names(ImageGcPreview)}."),
        ] = "",
        state_dir: StateDir = DEFAULT_STATE,
    ) -> None:
        """Show how full the disk of the images is, and what holds it. Nothing is removed."""
        if output not in {"", "json"}:
            raise typer.BadParameter(f"-o {output}: only json is possible here")
        print_disk(make_client(state_dir), as_json=output == "json", has_fates=gc_preview)

    @group.command()
    def pull(
        names: Annotated[list[str], typer.Argument(metavar="IMAGE…", help="Names as pods have them.")],
        runtime_endpoint: RuntimeEndpoint = "",
        state_dir: StateDir = DEFAULT_STATE,
    ) -> None:
        """Pull images, with the registry logins of the node, and show how far each is."""
        # Imported here: asyncio and gRPC take a while, and `klet images` needs neither.
        import asyncio  # noqa: PLC0415

        from klet.aio.clock import SystemClock  # noqa: PLC0415
        from klet.cli.image_pull import pull_images  # noqa: PLC0415
        from klet.cli.progress import choose_progress  # noqa: PLC0415

        clock = SystemClock()
        runtime = runtime_of(state_dir, runtime_endpoint)
        asyncio.run(pull_images(names, runtime, progress=choose_progress(clock=clock), clock=clock))

    @group.command()
    def rm(
        names: Annotated[list[str], typer.Argument(metavar="IMAGE…", help="Names or ids.")],
        force: Annotated[
            bool, typer.Option("--force", "-f", help="Remove it even if something uses it, or it is pinned.")
        ] = False,
        runtime_endpoint: RuntimeEndpoint = "",
        state_dir: StateDir = DEFAULT_STATE,
    ) -> None:
        """Remove images with all their names. One that is used or pinned is kept."""
        # Imported here for the same reason as above.
        import asyncio  # noqa: PLC0415

        from klet.aio.clock import SystemClock  # noqa: PLC0415
        from klet.cli.image_pull import remove_images  # noqa: PLC0415
        from klet.cli.progress import choose_progress  # noqa: PLC0415

        runtime, client = runtime_of(state_dir, runtime_endpoint), make_client(state_dir)
        progress = choose_progress(clock=SystemClock())
        raise typer.Exit(asyncio.run(remove_images(names, runtime, client, is_forced=force, progress=progress)))

    @group.command("load")
    @group.command("import")
    def load(
        files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Archives; `-` is standard input.")],
        name: BaseName = "",
        runtime_endpoint: RuntimeEndpoint = "",
        state_dir: StateDir = DEFAULT_STATE,
    ) -> None:
        """Load archives, of OCI or of `docker save`, into containerd. `load` and `import` are the same."""
        # Imported here for the same reason as above.
        from klet.aio.clock import SystemClock  # noqa: PLC0415
        from klet.cli.image_load import load_archive  # noqa: PLC0415
        from klet.cli.progress import choose_progress  # noqa: PLC0415

        clock = SystemClock()
        progress = choose_progress(clock=clock)
        runtime = runtime_of(state_dir, runtime_endpoint)
        for file in files:
            load_archive(file, runtime, base_name=name, progress=progress, clock=clock)

    app.add_typer(group, name="image")
