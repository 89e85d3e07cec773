"""How containers' processes live and end, after the script of their Life."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import PurePosixPath

from klet.testing.fake_runtime.calls import RpcFailure
from klet.testing.fake_runtime.lives import FileWrite, OutputLine
from klet.testing.fake_runtime.logs import format_records
from klet.testing.fake_runtime.timeline import nanoseconds
from klet.testing.fake_runtime.world import FakeContainer, Sandbox, World
from klet.wire import containerd_events_pb2 as containerd
from klet.wire import cri_v1_pb2 as pb

KILLED = 137
# What containerd reports for a container whose process was gone when containerd started.
LOST = 255
# What containerd reports for a container whose process never came to be.
START_FAILED = 128


class Processes:
    """Starts, signals and ends processes; each change is sent as an event."""

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self, container: FakeContainer) -> None:
        life, now = container.life, self._world.timeline.now
        container.pid = self._world.new_pid()
        container.is_alive = True
        container.state = pb.CONTAINER_RUNNING
        if container.log_path:
            self._world.sink.open(container.log_path)
        self._task_created(container.id, container.pid)
        container.started_at = self._world.timeline.stamp()
        for line in life.logs:
            self._later(container, line.at, partial(self.write, container, line))
        for file in life.files:
            self._later(container, file.at, partial(self._write_file, container, file))
        if life.lasts is not None:
            end = now + life.lasts
            container.timers.append(
                self._world.timeline.at(end, lambda: self.end(container, life.exit_code, oom=life.oom_killed))
            )

    def refuse(self, container: FakeContainer, failure: RpcFailure) -> RpcFailure:
        """Mark a container that could not be started as ended; return the error for the caller."""
        container.state = pb.CONTAINER_EXITED
        container.finished_at = self._world.timeline.stamp()
        container.exit_code = START_FAILED
        container.reason = "StartError"
        container.message = failure.message
        return RpcFailure(failure.code, failure.message)

    def terminate(self, container: FakeContainer) -> None:
        """Send the stop signal, once."""
        if container.was_signalled or not container.is_alive:
            return
        container.was_signalled = True
        reaction = container.life.on_term
        if reaction is not None:
            code = reaction.exit_code
            self._later(container, reaction.after, lambda: self.end(container, code))

    def end(self, container: FakeContainer, exit_code: int, *, oom: bool = False) -> None:
        """End the process. The CRI's view follows, at once or after the runtime's lag."""
        if not container.is_alive:
            return
        container.is_alive = False
        for timer in container.timers:
            timer.cancel()
        container.timers.clear()
        if oom:
            self._report_oom(container)
        container.ended.fire()
        stamp = self._task_exited(container.id, container.id, container.pid, exit_code)
        lag = self._world.features.view_lag
        if lag:
            due = self._world.timeline.now + lag
            self._world.timeline.at(due, lambda: self._reap(container, exit_code, stamp))
        else:
            self._reap(container, exit_code, stamp)

    def see_end(self, container: FakeContainer, exit_code: int) -> None:
        """End the process as the last thing that the runtime sees: it notes how, and sends no event."""
        self.lose(container)
        container.exit_code, container.reason = exit_code, ""

    def lose(self, container: FakeContainer) -> None:
        """End the process without anyone to see it: what the runtime finds out when it starts again.

        One that was created and never started stays so, as in containerd. No event is sent.
        """
        was_alive = container.is_alive
        container.is_alive = False
        for timer in container.timers:
            timer.cancel()
        container.timers.clear()
        if not container.is_running:
            return
        if container.log_path:
            self._world.sink.close(container.log_path)
        container.state = pb.CONTAINER_EXITED
        container.finished_at = self._world.timeline.stamp()
        container.exit_code = LOST
        container.reason = "Unknown"
        if was_alive:
            container.ended.fire()
        container.exited.fire()

    def kill(self, container: FakeContainer) -> None:
        self.end(container, KILLED)

    def start_pause(self, sandbox: Sandbox) -> None:
        self._task_created(sandbox.id, sandbox.pid)

    def end_pause(self, sandbox: Sandbox) -> None:
        """End the sandbox's own process, and with it those that run in its pid namespace."""
        if not sandbox.is_ready:
            return
        for container in list(sandbox.containers.values()):
            if container.config.linux.security_context.namespace_options.pid == pb.POD:
                self.kill(container)
        sandbox.state = pb.SANDBOX_NOTREADY
        stamp = self._task_exited(sandbox.id, sandbox.id, sandbox.pid, KILLED)
        self._task_deleted(sandbox.id, sandbox.pid, KILLED, stamp)

    def lose_pause(self, sandbox: Sandbox) -> None:
        """End the sandbox's own process, and with it its network namespace, without anyone to see it."""
        sandbox.state = pb.SANDBOX_NOTREADY
        sandbox.has_namespace = False

    def run_inside(self, container: FakeContainer) -> tuple[str, int]:
        """Return a process beside the container's own: its id and pid."""
        id_, pid = self._world.new_id(), self._world.new_pid()
        self._world.emit(
            "/tasks/exec-added", container.id, containerd.TaskExecAdded(container_id=container.id, exec_id=id_)
        )
        return id_, pid

    def started_inside(self, container: FakeContainer, id_: str, pid: int) -> None:
        body = containerd.TaskExecStarted(container_id=container.id, exec_id=id_, pid=pid)
        self._world.emit("/tasks/exec-started", container.id, body)

    def ended_inside(self, container: FakeContainer, id_: str, pid: int, exit_code: int) -> None:
        self._task_exited(container.id, id_, pid, exit_code)

    def write(self, container: FakeContainer, line: OutputLine) -> None:
        """Write output of the container; on a terminal all of it is stdout."""
        if container.log_path:
            stream = "stdout" if container.config.tty else line.stream
            stamp = self._world.timeline.stamp()
            records = format_records(line.text, stream=stream, stamp=stamp, newline=line.newline)
            self._world.sink.write(container.log_path, records)

    def _write_file(self, container: FakeContainer, file: FileWrite) -> None:
        path = PurePosixPath(file.path)
        for mount in container.config.mounts:
            if mount.readonly or not path.is_relative_to(mount.container_path):
                continue
            target = PurePosixPath(mount.host_path) / path.relative_to(mount.container_path)
            self._world.sink.write_file(str(target), file.content)

    def _later(self, container: FakeContainer, after: timedelta, action: Callable[[], None]) -> None:
        if after:
            container.timers.append(self._world.timeline.at(self._world.timeline.now + after, action))
        else:
            action()

    def _report_oom(self, container: FakeContainer) -> None:
        """Send the event of the OOM killer, which takes its own way and may be later than the exit."""

        def publish() -> None:
            container.reason = "OOMKilled"
            self._world.emit("/tasks/oom", container.id, containerd.TaskOOM(container_id=container.id))

        if lag := self._world.features.oom_lag:
            self._world.timeline.at(self._world.timeline.now + lag, publish)
        else:
            publish()

    def _reap(self, container: FakeContainer, exit_code: int, stamp: int) -> None:
        if not container.is_running:
            return  # the machine was rebooted meanwhile
        if container.log_path:
            self._world.sink.close(container.log_path)
        container.state = pb.CONTAINER_EXITED
        container.finished_at = stamp
        container.exit_code = exit_code
        self._task_deleted(container.id, container.pid, exit_code, stamp)
        container.exited.fire()

    def _task_created(self, id_: str, pid: int) -> None:
        bundle = f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id_}"
        self._world.emit("/tasks/create", id_, containerd.TaskCreate(container_id=id_, bundle=bundle, pid=pid))
        self._world.emit("/tasks/start", id_, containerd.TaskStart(container_id=id_, pid=pid))

    def _task_exited(self, container_id: str, id_: str, pid: int, exit_code: int) -> int:
        stamp = self._world.timeline.stamp()
        body = containerd.TaskExit(container_id=container_id, id=id_, pid=pid, exit_status=exit_code)
        body.exited_at.seconds, body.exited_at.nanos = divmod(stamp, 1_000_000_000)
        self._world.emit("/tasks/exit", container_id, body)
        return stamp

    def _task_deleted(self, id_: str, pid: int, exit_code: int, stamp: int) -> None:
        body = containerd.TaskDelete(container_id=id_, pid=pid, exit_status=exit_code)
        body.exited_at.seconds, body.exited_at.nanos = divmod(stamp, 1_000_000_000)
        self._world.emit("/tasks/delete", id_, body)


def running_time(container: FakeContainer, world: World) -> int:
    """Return nanoseconds since the start."""
    return max(0, nanoseconds(world.timeline.now) - container.started_at)
