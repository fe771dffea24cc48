"""The page `/docs`, made from the OpenAPI description: one HTML file that asks nothing of other servers."""

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from typing import Any, Final

STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .2rem .8rem .2rem 0 }
td, th { vertical-align: top; border-bottom: 1px solid #ddd } pre { overflow: auto; max-height: 20rem }
section { border-top: 3px solid #246; margin-top: 2rem } code, pre { background: #f3f5f8 }
"""
SCRIPT: Final = """
for (const form of document.forms) form.onsubmit = async event => {
  event.preventDefault();
  const query = new URLSearchParams([...new FormData(form)].filter(([name, value]) => name && value !== ""));
  const body = form.querySelector("[type=file]").files[0];
  const shown = form.querySelector("pre");
  try {
    const answer = await fetch(form.dataset.path + "?" + query, {method: "POST", body});
    shown.textContent = answer.status + "\\n" + JSON.stringify(await answer.json(), null, 1);
  } catch (error) { shown.textContent = error; }
};
"""
_SCRIPT_DIGEST: Final = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; "
    f"script-src 'sha256-{_SCRIPT_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
"""The browser itself refuses whatever the page would fetch from elsewhere."""


def render_page(described: dict[str, Any]) -> str:
    """The HTML page of an OpenAPI description."""
    about, schemas = described["info"], described.get("components", {}).get("schemas", {})
    sections = "".join(
        _operation(path, method, each)
        for path, methods in described["paths"].items()
        for method, each in methods.items()
    )
    bodies = "".join(_schema(name, each) for name, each in schemas.items())
    title = escape(f"{about['title']} {about['version']}")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>{escape(about.get('description', ''))} The same for programs: "
        f'<a href="openapi.json">openapi.json</a>.</p>{sections}<h2>Bodies</h2>{bodies}<script>{SCRIPT}</script>'
        "</body></html>"
    )


def _operation(path: str, method: str, about: dict[str, Any]) -> str:
    parameters, answers = about.get("parameters", []), about["responses"].items()
    rows = [(each["name"], _kind(each["schema"]), each.get("description", "")) for each in parameters]
    said = [(status, _content(each), each.get("description", "")) for status, each in answers]
    body = about.get("requestBody")
    asked = f"<p>Body: {_content(body)}. {escape(body.get('description', ''))}</p>" if body else ""
    image = body and "application/octet-stream" in body["content"]
    return (
        f'<section id="{escape(path[1:])}"><h2><code>{method.upper()} {escape(path)}</code></h2>'
        f"<p>{escape(about.get('description', ''))}</p>{asked}"
        + (_table(("parameter", "value", ""), rows) if rows else "")
        + _table(("status", "answer", ""), said)
        + (_form(path, [name for name, _, _ in rows]) if image else "")
        + "</section>"
    )


def _form(path: str, names: list[str]) -> str:
    fields = " ".join(f'<label>{escape(name)} <input name="{escape(name)}" size="8"></label>' for name in names)
    file = '<input type="file" accept="image/*" aria-label="image" required>'
    return f'<form data-path="{escape(path[1:])}">{file} {fields} <button>Send</button><pre></pre></form>'


def _schema(name: str, about: dict[str, Any]) -> str:
    needed = about.get("required", [])
    rows = [
        (field, _kind(each) + ("" if field in needed else " (optional)"), each.get("description", ""))
        for field, each in about.get("properties", {}).items()
    ]
    text = escape(about.get("description", ""))
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{text}</p>' + _table(("field", "value", ""), rows)


def _content(about: dict[str, Any]) -> str:
    return ", ".join(
        f"{_kind(each.get('schema', {}))} ({escape(kind)})" for kind, each in about.get("content", {}).items()
    )


def _kind(schema: dict[str, Any]) -> str:
    """What a value may be, as HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(escape(str(each)) for each in schema["enum"]) + _default(schema)
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    bounds = [f"{word} {schema[bound]}" for bound, word in (("minimum", "from"), ("maximum", "to")) if bound in schema]
    return " ".join([escape(schema.get("format") or schema.get("type") or "any"), *bounds]) + _default(schema)


def _default(schema: dict[str, Any]) -> str:
    return f", by default {escape(str(schema['default']).lower())}" if schema.get("default") is not None else ""


def _table(head: tuple[str, ...], rows: list[tuple[str, str, str]]) -> str:
    return f"<table><tr>{''.join(f'<th>{each}</th>' for each in head)}</tr>{''.join(_rows(rows))}</table>"


def _rows(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    for name, kind, text in rows:
        yield f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{escape(text)}</td></tr>"
