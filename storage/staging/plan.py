"""What to stage, with which settings, and under which name the store is kept."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from storage import fingerprint as identities
from storage.errors import SourceError, StoreError
from storage.fingerprint import fingerprint_of
from storage.format import manifest as manifests
from storage.sources import find
from storage.sources.base import Source, TextSource
from storage.staging.scale_blocks import unit_settings
from storage.staging.text.weighting import Weighting, make_weighting


class Plan(NamedTuple):
    """A source, its staging settings and its store."""

    source: Source
    fingerprint: str
    weighting: Weighting
    settings: dict[str, Any]
    key: str
    uri: str


def make_plan(
    source: str | os.PathLike[str] | Source,
    store: str | os.PathLike[str] | None,
    *,
    format: str | None = None,
    tile_rows: int | None = None,
    weight: str | None = None,
    scale: str | None = None,
    sublinear_tf: bool = True,
    **options: Any,
) -> Plan:
    """Return the plan for the parameters of `storage.stage`."""
    terms = {field.name for field in fields(Weighting)} & set(options)
    text = {name: options.pop(name) for name in terms}
    if isinstance(source, Source):
        source = source.absolute()
    else:
        source = find(str(source), format=format, **options)
    weighting = make_weighting(sublinear_tf=sublinear_tf, **text)
    settings: dict[str, Any] = {"tile_rows": tile_rows}
    if isinstance(source, TextSource):
        settings |= weighting.to_settings()
    elif given := sorted(weighting.changed() - ({"sublinear_tf"} if weight else set())):
        raise SourceError(
            f"{source.path} is a matrix, and {', '.join(given)} is for text: leave it out"
        )
    is_text = isinstance(source, TextSource)
    settings |= unit_settings(weight, scale, sublinear_tf, is_text, source.path)
    fingerprint = source.fingerprint()
    key = key_of(source, fingerprint, settings)
    uri = manifests.normalize_uri(store or default_store(source, key))
    plan = Plan(source, fingerprint, weighting, settings, key, uri)
    if store is None and not manifests.exists(uri):
        earlier = manifests.normalize_uri(default_store(source, legacy_key(plan)))
        return plan._replace(uri=earlier) if manifests.exists(earlier) else plan
    return plan


def key_of(source: Source, fingerprint: str, settings: dict[str, Any]) -> str:
    """Return the key of a source and its settings: equal keys mean equal stores."""
    return fingerprint_of(source.format, fingerprint, manifests.VERSION, sorted(settings.items()))


def legacy_key(plan: Plan) -> str:
    """Return the key that rule 1 gives, so that stores of earlier versions are reused."""
    with identities.first_rule():
        return key_of(plan.source, plan.source.fingerprint(), plan.settings)


def default_store(source: Source, key: str) -> Path:
    """Return the store's path if the user names none."""
    stem = re.sub(r"[^\w.-]+", "-", Path(source.path).name.split(".")[0] or "corpus")
    return Path(".bigfs") / f"{stem}-{key[:12]}.zarr"


def is_staged(plan: Plan) -> bool:
    """Return whether the store of a plan is there already."""
    if not manifests.exists(plan.uri):
        if "://" not in plan.uri and os.path.exists(plan.uri):
            raise StoreError(
                f"{plan.uri} exists and is not a store: give another name or remove it"
            )
        return False
    manifest = manifests.manifest_of(plan.uri)
    by_rule_1 = "identity" not in manifest.source
    if manifest.key != (legacy_key(plan) if by_rule_1 else plan.key):
        raise StoreError(
            f"{plan.uri} holds {manifest.source['uri']}, which has changed since or "
            f"was staged with other settings: give another name or remove it"
        )
    manifests.checksums_of(plan.uri, manifest.content)
    return True
