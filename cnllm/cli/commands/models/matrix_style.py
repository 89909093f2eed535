"""Define the style of the page of `cnllm models matrix`: light and dark, wide and narrow."""

__all__ = ["STYLE"]

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c2128; --soft: #656d76; --line: #dfe3e8; --head: #f5f7f9; --over: #eef3fb;
  --yes: #0f6b34; --yes-paper: #dff3e5; --no: #9a3324; --accent: #0b5cad; --shade: 0 6px 24px rgb(20 30 50 / .18);
  --first: 15rem; --groups: 1.7rem; --names: 11rem;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181d; --ink: #e4e8ec; --soft: #98a2ad; --line: #2c333b; --head: #1b2027; --over: #1f2833;
    --yes: #7fdc9f; --yes-paper: #17392a; --no: #f0968a; --accent: #77b3f5; --shade: 0 6px 24px rgb(0 0 0 / .6);
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
html, body { height: 100%; margin: 0; }
body {
  display: flex; flex-direction: column; overflow: hidden; background: var(--paper); color: var(--ink);
  font: 14px/1.4 system-ui, -apple-system, "Segoe UI", "Noto Sans", "PingFang SC", "Noto Sans CJK SC", sans-serif;
}
header { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem 1.25rem; padding: .7rem 1rem; }
h1 { font-size: 1.15rem; margin: 0; }
#count { font-weight: 400; color: var(--soft); margin-left: .2rem; }
.legend { display: flex; gap: .9rem; margin: 0; color: var(--soft); }
.legend b { display: inline-block; width: 1.5em; border-radius: .3em; text-align: center; }
form { display: flex; flex-wrap: wrap; gap: .5rem; margin-left: auto; }
input[type=search], select, summary, #reset {
  font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--line); border-radius: .5rem;
  padding: .4rem .65rem; min-height: 2.3rem;
}
input[type=search] { width: 14rem; }
select { max-width: 12rem; }
summary, #reset, thead button { cursor: pointer; }
summary { list-style: none; user-select: none; }
summary::-webkit-details-marker { display: none; }
summary::after { content: " ▾"; color: var(--soft); }
#wanted { margin-left: .35rem; color: var(--accent); font-weight: 600; }
#wanted:empty { display: none; }
details { position: relative; }
.panel {
  position: absolute; right: 0; z-index: 20; margin-top: .3rem; width: min(34rem, 94vw); max-height: 70vh;
  overflow: auto; padding: .8rem 1rem; background: var(--paper); border: 1px solid var(--line);
  border-radius: .7rem; box-shadow: var(--shade);
}
fieldset { border: 0; margin: 0 0 .5rem; padding: 0; display: flex; flex-wrap: wrap; gap: .35rem; }
fieldset legend { color: var(--soft); font-size: .8rem; padding: 0 0 .25rem; }
fieldset label span {
  display: inline-block; padding: .3rem .7rem; border: 1px solid var(--line); border-radius: 2rem; cursor: pointer;
}
fieldset input { position: absolute; opacity: 0; pointer-events: none; }
fieldset input:checked + span { border-color: var(--accent); color: var(--accent); box-shadow: inset 0 0 0 1px; }
fieldset input:checked + span::before { content: "✓ "; }
:focus-visible, fieldset input:focus-visible + span { outline: 2px solid var(--accent); outline-offset: 1px; }

.scroll {
  flex: 1; min-height: 0; overflow: auto; overscroll-behavior: contain; border-top: 1px solid var(--line);
  scroll-padding: calc(var(--groups) + var(--names)) 0 0 var(--first);
}
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; }
th, td {
  border-bottom: 1px solid var(--line); padding: .2rem .5rem; line-height: 1.3; text-align: center; white-space: nowrap;
}
.start { border-left: 1px solid var(--line); }
thead th { position: sticky; z-index: 3; background: var(--head); font-weight: 600; padding: 0; }
.groups th { top: 0; height: var(--groups); }
.groups th > span { color: var(--soft); font-size: .8rem; padding: 0 .4rem; }
.names th { top: var(--groups); height: var(--names); vertical-align: bottom; }
thead button {
  font: inherit; color: inherit; background: none; border: 0; padding: .4rem .5rem; width: 100%; height: 100%;
  display: flex; align-items: flex-end; gap: .2rem; justify-content: center;
}
.ability button {
  writing-mode: vertical-rl; transform: rotate(180deg); align-items: center; justify-content: flex-start;
  padding: .5rem .2rem; font-size: .82rem; letter-spacing: .01em;
}
.number button { justify-content: flex-end; }
.groups .first button { justify-content: flex-start; padding: .4rem 1rem; }
thead button:hover { color: var(--accent); }
th[aria-sort=ascending] button::after { content: "▲"; font-size: .65em; }
th[aria-sort=descending] button::after { content: "▼"; font-size: .65em; }
.ability[aria-sort=ascending] button::after { content: "▶"; }
.ability[aria-sort=descending] button::after { content: "◀"; }
.first, tbody th {
  position: sticky; left: 0; width: var(--first); min-width: var(--first); max-width: var(--first); text-align: left;
  border-right: 1px solid var(--line);
}
.groups .first { z-index: 5; }
tbody th { z-index: 2; background: var(--paper); font-weight: 400; padding: .2rem 1rem; white-space: normal; }
tbody th b { font-weight: 600; overflow-wrap: anywhere; }
tbody th small { display: block; color: var(--soft); }
tbody em { font-style: normal; font-size: .75rem; color: var(--soft); border: 1px solid var(--line);
  border-radius: .35rem; padding: 0 .3rem; white-space: nowrap; }
tr[data-r="1"] th b { color: var(--soft); text-decoration: line-through; }
td, .ability { min-width: 36px; }
td { cursor: default; }
td.number { text-align: right; }
td.number small { color: var(--soft); }
.y { color: var(--yes); background: var(--yes-paper); font-weight: 700; }
.n { color: var(--no); }
.u { color: var(--soft); }
tbody tr:hover th { background: var(--over); }
tbody tr:hover td:not(.y) { background: var(--over); }
td.shown, th.shown { outline: 2px solid var(--accent); outline-offset: -2px; }
#none { padding: 2rem 1rem; color: var(--soft); }

#card {
  position: fixed; z-index: 30; width: 25rem; max-width: calc(100vw - 1rem); padding: .8rem 1rem;
  background: var(--paper);
  border: 1px solid var(--line); border-radius: .7rem; box-shadow: var(--shade);
  overflow-wrap: anywhere; max-height: calc(100vh - 1rem); overflow: auto;
}
#card h2 { font-size: 1rem; margin: 0 1.8rem .1rem 0; }
#card p { margin: 0 0 .5rem; color: var(--soft); }
#card dl { display: grid; grid-template-columns: auto 1fr; gap: .15rem .8rem; margin: 0; }
#card dt { color: var(--soft); }
#card dd { margin: 0; }
#card code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
#card a { color: var(--accent); }
#card button {
  position: absolute; top: .35rem; right: .35rem; width: 2.2rem; height: 2.2rem; border: 0; background: none;
  color: var(--soft); font-size: 1.1rem; cursor: pointer; border-radius: .5rem;
}
@media (max-width: 640px) {
  :root { --first: 8.6rem; --names: 11rem; }
  header { padding: .55rem .7rem; gap: .45rem .8rem; }
  .legend { margin-left: auto; gap: .45rem; font-size: .8rem; }
  h1 { font-size: 1.05rem; }
  form { margin: 0; width: 100%; flex-wrap: nowrap; }
  input[type=search] { flex: 1 1 6rem; width: 0; font-size: 16px; }
  select { flex: 1 1 5rem; width: 0; font-size: 16px; padding: .4rem .3rem; }
  .panel { position: fixed; left: .5rem; right: .5rem; width: auto; max-height: 60vh; }
  .groups .first button, tbody th { padding-left: .7rem; padding-right: .4rem; }
  tbody th { font-size: .92rem; }
  td, .ability { min-width: 42px; }
  td { height: 44px; }
  fieldset label span { padding: .45rem .85rem; }
  #card { left: .5rem !important; right: .5rem; bottom: .5rem; top: auto !important; width: auto; max-height: 45vh; }
}
@media (max-height: 520px) {
  :root { --names: 8.8rem; --groups: 1.4rem; }
  .legend { display: none; }
  header { padding: .3rem .7rem; flex-wrap: nowrap; }
  .ability button { font-size: .66rem; }
}
@media print { body { overflow: visible; display: block; } .scroll { overflow: visible; } form { display: none; } }
"""
"""The style sheet."""
