"""Stands in for Docker: takes the options that Docker has, and runs the command on this machine.

A script; it knows only the options of ``docker run`` that are listed here. The folder that it is in
gets ``run.json`` (options, image, command) and ``removed`` (names).
"""

import json
import os
import sys
from pathlib import Path

FLAGS = {"--rm", "--interactive", "--init", "--read-only"}
WITH_VALUE = {
    *("--name", "--label", "--hostname", "--user", "--network", "--memory", "--memory-swap"),
    *("--cpus", "--pids-limit", "--ulimit", "--cap-drop", "--security-opt", "--tmpfs", "--mount"),
    *("--workdir", "--env-file", "--pull", "--userns"),
}


def fail(text: str) -> None:
    sys.exit(f"docker: {text}")


def parse(arguments: list[str]) -> tuple[list[tuple[str, str | None]], list[str]]:
    options: list[tuple[str, str | None]] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        if name in FLAGS:
            options.append((name, None))
        elif name in WITH_VALUE:
            options.append((name, rest.pop(0)))
        else:
            fail(f"unknown flag: {name}")
    return options, rest


def outside(path: str, mounts: list[dict[str, str]]) -> str:
    """Return the path on this machine of a path in the container."""
    for mount in mounts:
        if path == mount["target"] or path.startswith(mount["target"] + "/"):
            return mount["source"] + path[len(mount["target"]) :]
    return path


def run(arguments: list[str], notes: Path) -> None:
    options, (image, *command) = parse(arguments)
    values = dict(options)
    lines = Path(values["--env-file"] or "").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines)
    values["--env-file"] = "…"
    record = {"options": options, "image": image, "command": command, "variables": variables}
    (notes / "run.json").write_text(json.dumps(record))
    mounts = [
        dict(part.split("=", 1) for part in value.split(",") if "=" in part)
        for name, value in options
        if name == "--mount" and value is not None
    ]
    os.chdir(outside(values["--workdir"] or "/", mounts))
    if command[0] == "python3":
        command[0] = sys.executable
    try:
        os.execvpe(command[0], command, variables)
    except OSError as error:
        print(f"docker: {command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


def main() -> None:
    notes = Path(__file__).parent
    match sys.argv[1:]:
        case ["run", *arguments]:
            run(arguments, notes)
        case ["rm", "--force", "--volumes", name]:
            with (notes / "removed").open("a") as file:
                file.write(f"{name}\n")
        case ["image", "inspect", "--format", "{{.Id}}", "mochi-server-sandbox"]:
            print("sha256:0")
        case ["image", "inspect", "--format", "{{.Id}}", name]:
            fail(f"Error: No such image: {name}")
        case others:
            fail(f"unknown command: {others}")


if __name__ == "__main__":
    main()
