"""How report.html looks: from a phone of 360 px to a desktop, and on paper."""

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1a1d21;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1.2rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .6rem 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; border-bottom: 1px solid #d4d8dd;
  padding-bottom: .25rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; overflow-wrap: anywhere; }
p, li { max-width: 48rem; overflow-wrap: anywhere; }
.facts { color: #4a5159; margin: 0 0 1rem; max-width: none; }
.verdict { background: #f3f6fa; border-left: 4px solid #0b5cad; padding: .5rem 1.1rem;
  border-radius: 0 6px 6px 0; }
.verdict p { max-width: none; }
.figures { display: grid; gap: 1.6rem 2rem; grid-template-columns: repeat(auto-fit,
  minmax(min(100%, 27rem), 1fr)); align-items: start; }
figure { margin: 0; min-width: 0; }
figure.tall { grid-row: span 2; }
figure img { display: block; width: 100%; max-width: 38rem; height: auto; margin: 0 auto; }
figcaption { font-size: .9rem; color: #3b4148; max-width: 38rem; margin: .3rem auto 0; }
figcaption b { color: #1a1d21; }
.scroll { overflow-x: auto; max-width: 100%; margin: .8rem 0 1.2rem; }
.scroll:focus-visible, a:focus-visible { outline: 3px solid #0b5cad; outline-offset: 2px; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #e3e6ea; }
thead th { border-bottom: 2px solid #8a939c; vertical-align: bottom; }
th.word, td.word { text-align: left; }
td.long { white-space: normal; min-width: 16rem; overflow-wrap: anywhere; }
tbody tr:nth-child(even) { background: #f8f9fb; }
pre { background: #f3f4f6; padding: .8rem 1rem; overflow-x: auto; font-size: .85rem;
  line-height: 1.45; border-radius: 6px; margin: .5rem 0; }
pre.command { white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .6rem 0; }
summary { cursor: pointer; font-weight: 600; padding: .2rem 0; overflow-wrap: anywhere; }
a { color: #0b5cad; }
@media print { .figures { display: block; } figure { break-inside: avoid; } }
"""
