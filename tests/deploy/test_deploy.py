"""The files of ``deploy/``, as the tools read them that they are for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from compose_spec import PyCompose

from mochi_server.config import MochiServerSettings

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent


def read(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def run(*command: str | Path) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_settings(names: set[str]) -> None:
    known = {f"MOCHI_{name.upper()}" for name in MochiServerSettings.model_fields}
    named = {name.removesuffix("_FILE") for name in names if name.startswith("MOCHI_")}
    assert named <= known


def test_the_compose_file_is_valid_and_its_settings_exist() -> None:
    compose = PyCompose.from_yaml((DEPLOY / "compose.yaml").read_text())
    assert compose.validate() is None
    [document] = read("compose.yaml")
    services = document["services"]
    assert {"server-1", "server-2", "redis", "postgres", "proxy"} == set(services)
    for name in ("server-1", "server-2"):
        assert services[name]["read_only"] is True
        check_settings(set(services[name]["environment"]))
    proxied = (DEPLOY / "nginx.conf").read_text()
    assert "server server-1:8000;" in proxied
    assert "server server-2:8000;" in proxied


def test_the_manifest_is_valid_and_its_settings_exist() -> None:
    tool, manifest = BIN / "kubernetes-validate", DEPLOY / "kubernetes.yaml"
    done = run(tool, "--strict", manifest)
    documents = read("kubernetes.yaml")
    assert done.count("passed") == len(documents)
    deployment = documents[0]["spec"]["template"]["spec"]
    [container] = deployment["containers"]
    check_settings({variable["name"] for variable in container["env"]})
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in deployment["volumes"]}


async def test_the_probes_of_the_manifest_are_answered(server_of: Any) -> None:
    [container] = read("kubernetes.yaml")[0]["spec"]["template"]["spec"]["containers"]
    async with server_of() as server:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            request = container[probe]["httpGet"]
            headers = {each["name"]: each["value"] for each in request["httpHeaders"]}
            url = server.url + request["path"]
            async with server.http.get(url, headers=headers) as response:
                assert response.status == 200, probe


def variables_of_compose() -> dict[str, str]:
    return dict(read("compose.yaml")[0]["services"]["server-1"]["environment"])


def variables_of_kubernetes() -> dict[str, str]:
    [container] = read("kubernetes.yaml")[0]["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


@pytest.mark.parametrize("variables", [variables_of_compose, variables_of_kubernetes])
async def test_the_page_works_through_a_proxy_with_tls_at_another_address(
    variables: Callable[[], dict[str, str]], server_of: Any
) -> None:
    trusted = variables()["MOCHI_TRUSTED_PROXIES"]
    headers = {
        "Host": "chat.example.org",
        "Origin": "https://chat.example.org",
        "X-Forwarded-Proto": "https",
    }
    proxy = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with (
        server_of(allowed_hosts="chat.example.org", trusted_proxies=trusted) as server,
        aiohttp.ClientSession(connector=proxy, headers=headers) as client,
        client.get(server.url + "/api/v1/sessions") as response,
    ):
        assert response.status == 200, await response.text()


@pytest.mark.parametrize("variables", [variables_of_compose, variables_of_kubernetes])
def test_one_proxy_may_have_as_many_connections_as_there_may_be_requests(
    variables: Callable[[], dict[str, str]],
) -> None:
    requests = MochiServerSettings().max_requests
    assert int(variables()["MOCHI_MAX_CONNECTIONS_PER_ADDRESS"]) >= requests


def test_the_recipe_of_the_image_has_nothing_to_object_to() -> None:
    run(BIN / "hadolint", DEPLOY / "Containerfile")


def test_the_image_is_made_of_what_the_recipe_is_sent() -> None:
    """All that the package is built from, and nothing else, is in the context of the build."""
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert ignored[0] == "*"
    built = read_packages()
    assert built <= kept
    assert all((ROOT / name).exists() for name in kept)


def read_packages() -> set[str]:
    project = (ROOT / "pyproject.toml").read_text()
    lines = project.split("only-include = [")[1].split("]")[0].split()
    return {line.strip('",') for line in lines}
