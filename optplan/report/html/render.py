"""Templates, filled: everything is escaped but our own style and script."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import optplan

STYLE, SCRIPT = "style.css.j2", "script.js.j2"


@cache
def environment() -> Environment:
    """Make the one environment: escaping always on, an unknown name is a fault."""
    made = Environment(
        loader=PackageLoader("optplan.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    return made


def render(template: str, **values: Any) -> str:
    """Fill a template; a page's policy allows this very style and script and no other."""
    style, script = own(STYLE), own(SCRIPT)
    return (
        environment()
        .get_template(template)
        .render(
            style=Markup(style),  # our own file, nothing of it comes from outside
            script=Markup(script),
            style_hash=_policy(style),
            script_hash=_policy(script),
            version=optplan.__version__,
            **values,
        )
    )


@cache
def own(name: str) -> str:
    """Read one of our own files that goes into the page as it is."""
    return files("optplan.report").joinpath("templates", name).read_text(encoding="utf-8")


def _policy(text: str) -> str:
    """Name a style or script in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
