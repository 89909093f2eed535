"""Choose the site of a vendor for a model name without a provider: the one whose key is set.

A vendor may serve the same models at several sites, and a key of one is refused by the others (`site` in the registry).
A full name, a provider that the user prefers and an alias of the user's own name their site themselves. Where one
variable fits several sites, the user's choice is kept in a file, by the vendor and the variable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from cnllm.config import keys, paths
from cnllm.errors import CnllmError
from cnllm.registry.model import Model
from cnllm.registry.registry import Registry, SiteGroup
from cnllm.system import files
from cnllm.types import Note

__all__ = ["AskSite", "choose_site", "has_key", "keep_site", "order_keys", "site_of_key", "unsure_sites"]

AskSite = Callable[[str, Sequence[Model]], str | None]
"""Asks the user for the site of a key: gets the variable, and the model at each site, the default first. Returns the
provider; None where nobody answers."""


class _Choice(Struct, frozen=True):
    """A provider, and the reason for it in words; "" where nothing was chosen."""

    provider: str
    reason: str
    is_unsure: bool = False  # whether the key may be one of another site


def choose_site(
    registry: Registry,
    name: str,
    *,
    protocol: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    key_env: str | None = None,
    ask: AskSite | None = None,
    suggest: bool = True,
    is_bare: bool = False,
) -> Model:
    """Return the model of a name as `Registry.resolve` does, but at the site of its vendor whose key is set.

    Where a key decides, the model has a note with the site and the reason. Without a key, or with keys for several
    sites, it is the model of `Registry.resolve`. `api_key` and `key_env` replace the variables of the environment.
    `ask` is asked for the site of a variable that fits several, and the answer is kept. `is_bare`: the provider in the
    name is cnllm's choice and not the user's. Raises as `Registry.resolve` does.
    """
    if base_url is not None:
        return registry.resolve(name, protocol=protocol, base_url=base_url, suggest=suggest)
    group = registry.site_group(name, is_bare=is_bare, suggest=suggest)
    if group is None:
        return registry.resolve(name, protocol=protocol, suggest=suggest)
    choice = _choose(registry, group, api_key, key_env, ask)
    if choice is None:
        return registry.resolve(name, protocol=protocol, suggest=suggest)
    key = (choice.provider, protocol, choice.reason)
    model = group.models.get(key)
    if model is None:
        model = group.models[key] = _build_model(registry, name, group, choice, protocol)
    return model


def _build_model(registry: Registry, name: str, group: SiteGroup, choice: _Choice, protocol: str | None) -> Model:
    """Return the model at a site, with a note that says why it is this one."""
    model = registry.resolve(f"{choice.provider}/{name}", protocol=protocol)
    if model.id != group.id:  # the name is no family's name
        model = registry.resolve(f"{choice.provider}/{group.id}", protocol=protocol)
    note = Note("site", "site", name, f"{model.provider} ({model.flags.base_url}): {choice.reason}")
    return model.with_note(note)


def unsure_sites(registry: Registry) -> list[Note]:
    """Return a note for each vendor whose default site is asked with a key that may be one of another site."""
    found: dict[str, Note] = {}
    has_keys: dict[str, bool] = {}  # by provider: most vendors have one site, or no key
    for name, target in registry.family_aliases.items():
        provider = target.partition("/")[0]
        if provider not in has_keys:
            has_keys[provider] = bool(
                keys.names_with_key([k for site in registry.sites(provider) for k in _variables(registry, site)])
            )
        group = registry.site_group(name, suggest=False) if has_keys[provider] else None
        if group is None or group.vendor in found:
            continue
        choice = _choose(registry, group, None, None, None)
        if choice is not None and choice.is_unsure:
            notes = _build_model(registry, name, group, choice, None).notes
            found[group.vendor] = next(note for note in notes if note.code == "site")
    return list(found.values())


def has_key(registry: Registry, provider: str) -> bool:
    """Whether a key is set that may be one of this site."""
    owners = _owners(registry, provider)
    return any(owners.get(key) in (None, provider) for key in keys.names_with_key(_variables(registry, provider)))


def order_keys(registry: Registry, model: Model, names: list[str]) -> list[str]:
    """Return the variables of a model's key, best first: those of its own site, then those that fit several sites."""
    if model.flags.site is None or len(names) < 2 or len(keys.names_with_key(names)) < 2:
        return names
    owners = _owners(registry, model.provider)
    return sorted(names, key=lambda name: 0 if (o := owners.get(name)) == model.provider else 1 if o is None else 2)


def site_of_key(registry: Registry, provider: str, variable: str) -> str | None:
    """Return the site that a variable means among those of a provider's vendor; None where it fits several."""
    return _owners(registry, provider).get(variable)


def keep_site(vendor: str, variable: str, provider: str) -> Path:
    """Keep the site of a variable's key for all later calls, and return the path of the file. Raise `CnllmError`."""
    file = Path(_file())

    def change(old: bytes | None) -> bytes:
        sites = _decode(old, str(file))
        sites.setdefault(vendor, {})[variable] = provider
        return json.dumps(sites, indent=2, sort_keys=True).encode() + b"\n"

    files.change_file(file, change)
    return file


# ── the choice ───────────────────────────────────────────────────────────────


def _choose(
    registry: Registry, group: SiteGroup, api_key: str | None, key_env: str | None, ask: AskSite | None
) -> _Choice | None:
    """Return the site of a group; None where its default, or the lack of one, stands without a choice."""
    if key_env is not None:
        present = [key_env] if key_env in group.readers else []
    else:
        present = keys.names_with_key(list(group.readers))
        if api_key is not None:
            present = [key for key in present if keys.find_key([key]) == api_key]
    if not present and api_key is None:
        return _choose_plan(registry, group, ask) if key_env is None else None
    if len(group.sites) == 1:
        return None
    choices = {}
    if any(len(group.readers[key]) > 1 for key in present or group.readers):
        choices = {k: site for k, site in _choices().get(group.vendor, {}).items() if site in group.readers.get(k, ())}
    if not present:  # a key that the environment does not have
        sites = set(choices.values())
        return _Choice(sites.pop(), "you chose it for your key of this vendor") if len(sites) == 1 else None
    owners = {**group.owners, **choices}
    owned = {owners[key]: key for key in reversed(present) if key in owners}
    shared = [key for key in present if key not in owners]
    others = {site: key for key in reversed(shared) for site in group.readers[key] if site not in owned}
    listed = [site for site in others if site in group.listed] or list(others)
    if len(owned) == 1 and not others:
        [(site, key)] = owned.items()
        if site in group.listed or not group.is_own:
            return _Choice(site, f"you chose it for {key}" if key in choices else _reason(key))
        return None
    if owned:  # there are keys for several sites
        usable = [*owned, *listed]
        if group.default in usable:
            return None
        best = next(site for site in group.sites if site in usable)
        return _Choice(best, _reason({**others, **owned}[best]))
    if len(listed) == 1:
        return _Choice(listed[0], _reason(others[listed[0]]))
    return _choose_shared(registry, group, shared[0], listed, ask)


def _choose_shared(
    registry: Registry, group: SiteGroup, key: str, fitting: list[str], ask: AskSite | None
) -> _Choice | None:
    """Return the site of a variable that fits several: the user's answer, else the default."""
    sites = [site for site in group.sites if site in fitting]
    if ask is not None:
        answer = ask(key, [registry.resolve(f"{site}/{group.id}") for site in sites])
        if answer is not None:
            keep_site(group.vendor, key, answer)
            return _Choice(answer, f"you chose it for {key}")
    if group.default not in fitting:
        return None  # the name stands for no model, or for one that has no key
    others = ", ".join(site for site in sites if site != group.default)
    return _Choice(
        str(group.default),
        f"this is the default, and {key} fits {others} too; `cnllm keys test {key}` finds out which one takes it",
        is_unsure=True,
    )


def _choose_plan(registry: Registry, group: SiteGroup, ask: AskSite | None) -> _Choice | None:
    """Return the plan of the vendor whose own variable is set, where no other key of the vendor is."""
    for plan in registry.plans(group):
        own = keys.names_with_key([key for key in _variables(registry, plan) if key not in group.readers])
        if own:
            sites = registry.site_group(f"{plan}/{group.id}", is_bare=True)
            choice = _choose(registry, sites, None, None, ask) if sites is not None else None
            return choice or _Choice(plan, _reason(own[0]))
    return None


def _reason(key: str) -> str:
    return f"{key} is set" if keys.key_source(key) == "environment" else f"{key} is in the keys file"


def _variables(registry: Registry, provider: str) -> list[str]:
    return registry.endpoint(provider).flags.keys or []


def _owners(registry: Registry, provider: str) -> Mapping[str, str]:
    """Return the site that each variable means, the user's choices included."""
    sites = registry.sites(provider)
    vendor = str(sites[provider]["vendor"]) if provider in sites else ""
    owners = {key: site for site, table in sites.items() for key in table["keys"]}
    return {**owners, **{key: site for key, site in _choices().get(vendor, {}).items() if site in sites}}


# ── the file of choices ──────────────────────────────────────────────────────


def _file() -> str:
    return f"{paths.folder('config')}/sites.json"


def _choices() -> dict[str, dict[str, str]]:
    """Return the user's choices: the provider of each variable, by vendor."""
    file = _file()
    try:
        return _decode(files.read_bounded(file), file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        message = f"the file of sites {file} cannot be read: {error.strerror}"
        raise CnllmError(message, hint=paths.CONFIG_DIR_HINT) from error


def _decode(content: bytes | None, file: str) -> dict[str, dict[str, str]]:
    try:
        return msgspec.json.decode(content or b"{}", type=dict[str, dict[str, str]])
    except (ValueError, RecursionError) as error:
        raise CnllmError(
            f"{file} is not an object of objects of strings", hint="delete it: cnllm asks again which site a key is for"
        ) from error
