"""The look of the HTML report: one style sheet for wide and narrow, light and dark, screen and paper.

Colours of arms follow Okabe and Ito, told apart by all kinds of colour vision; arms differ in dashes too.
"""

CSS = """
:root { color-scheme: light dark;
  --paper: #ffffff; --soft: #f3f5f7; --ink: #1b1f24; --quiet: #57606a; --rule: #d0d7de; --link: #0550ae;
  --arm0: #0072b2; --arm1: #c04f00; --arm2: #00795a; --arm3: #9a4c7d;
  --good: #00695c; --bad: #b02a00; --even: #57606a; --shade: #e8edf2; --shade2: #f1f4f7; --fio: #f6e8c3;
  --tint0: #440154; --tint1: #46327e; --tint2: #365c8d; --tint3: #277f8e; --tint4: #1fa187;
  --tint5: #4ac16d; --tint6: #a0da39; --tint7: #fde725; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #0f1419; --soft: #1a2129; --ink: #e6edf3; --quiet: #9aa7b4; --rule: #3a444f; --link: #79b8ff;
  --arm0: #56b4e9; --arm1: #f0a04b; --arm2: #2fc49a; --arm3: #e39cc4;
  --good: #4fd1b5; --bad: #ff9d7a; --even: #9aa7b4; --shade: #222c36; --shade2: #19212a; --fio: #3a3218; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main, header, nav, footer { max-width: 66rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1.1rem; font-weight: 600; color: var(--quiet); margin: 1.5rem 0 .5rem; }
h2 { font-size: 1.35rem; margin: 2.5rem 0 .75rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
.verdict { font-size: 1.35rem; line-height: 1.35; font-weight: 600; margin: .25rem 0 .75rem; }
.invalid .verdict { color: var(--bad); }
.labels { list-style: none; margin: 0 0 .5rem; padding: 0; display: flex; flex-wrap: wrap; gap: .5rem; }
.labels li { border: 1px solid var(--rule); border-radius: 1rem; padding: .1rem .75rem;
  background: var(--soft); }
.about, .note, figcaption { color: var(--quiet); font-size: .875rem; margin: .25rem 0;
  overflow-wrap: anywhere; }
nav ul { list-style: none; padding: 0; margin: 1rem 0 0; display: flex; flex-wrap: wrap;
  gap: .25rem 1.25rem; }
a { color: var(--link); }
a:focus-visible, .scroll:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding: .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .75rem; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th:first-child { padding-left: 0; }
th { font-weight: 600; }
tbody th { font-weight: 400; overflow-wrap: anywhere; min-width: 9rem; }
thead th { color: var(--quiet); vertical-align: bottom; }
th.left, td.left, tbody th, thead th:first-child { text-align: left; }
td { white-space: nowrap; }
td.left { white-space: normal; overflow-wrap: break-word; min-width: 7rem; }
.better { color: var(--good); font-weight: 600; }
.ok { color: var(--good); } .failed { color: var(--bad); font-weight: 700; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr));
  gap: 1rem 2rem; align-items: start; }
figure { margin: 0; min-width: 0; }
figure h3 { margin: .5rem 0; overflow-wrap: anywhere; }
svg { display: block; width: 100%; max-width: 34rem; height: auto; overflow: visible; }
svg text { font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  fill: var(--quiet); }
svg .name { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
  svg text.on { font-weight: 600; }
.grid { stroke: var(--rule); stroke-width: .6; } .axis { stroke: var(--quiet); stroke-width: 1; }
.zero { stroke: var(--ink); stroke-width: 1.2; } .margin { fill: var(--shade); }
.interval { stroke-width: 2; stroke: var(--even); } .mark { stroke-width: 2; stroke: var(--even);
  fill: var(--paper); }
.interval.faster { stroke: var(--good); } .mark.faster { stroke: var(--good); fill: var(--good); }
.interval.slower { stroke: var(--bad); } .mark.slower { stroke: var(--bad); fill: var(--bad); }
.mark.equivalent { fill: var(--even); }
.curve, .thin { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.thin { stroke-width: 1.3; }
.arm0 { stroke: var(--arm0); } .arm1 { stroke: var(--arm1); }
.arm2 { stroke: var(--arm2); } .arm3 { stroke: var(--arm3); }
.curve.arm1 { stroke-dasharray: 7 3; } .curve.arm2 { stroke-dasharray: 2 3; }
.curve.arm3 { stroke-dasharray: 9 3 2 3; }
.thin.even { stroke: var(--even); stroke-width: .8; } .moment { fill: var(--bad); }
.dot { fill: var(--paper); stroke-width: 2.2; }
.tint0 { --tint: var(--tint0); } .tint1 { --tint: var(--tint1); } .tint2 { --tint: var(--tint2); }
.tint3 { --tint: var(--tint3); } .tint4 { --tint: var(--tint4); } .tint5 { --tint: var(--tint5); }
.tint6 { --tint: var(--tint6); } .tint7 { --tint: var(--tint7); }
.task { fill: var(--tint); } .swatch { display: inline-block; width: 1.1rem; height: .6rem;
  background: var(--tint); border: 1px solid var(--rule); margin-right: .4rem; }
.tasks { list-style: none; padding: 0; font-size: .875rem; display: flex; flex-wrap: wrap; gap: .1rem 1rem;
  overflow-wrap: anywhere; }
.reasons { margin: .25rem 0 .75rem; padding-left: 1.25rem; }
.span { fill: var(--shade); } .span.other { fill: var(--shade2); } .span.fio { fill: var(--fio); }
footer { margin: 3rem auto 2rem; color: var(--quiet); font-size: .875rem; }
@media (min-width: 60rem) { tbody th { white-space: nowrap; } }
@media (max-width: 40rem) { .verdict { font-size: 1.15rem; } th, td { padding: .3rem .5rem; }
  tbody th { min-width: 7.5rem; } td.left { min-width: 5rem; } svg text { font-size: 14px; }
  .scroll th:first-child { position: sticky; left: 0; background: var(--paper); } }
@media print { :root { --paper: #fff; --soft: #fff; --ink: #000; --quiet: #444; --rule: #bbb; --link: #000;
    --arm0: #0072b2; --arm1: #c04f00; --arm2: #00795a; --arm3: #9a4c7d;
    --good: #00695c; --bad: #b02a00; --even: #444; --shade: #e8e8e8; --shade2: #f4f4f4; --fio: #f6e8c3; }
  nav, .skip { display: none; } .scroll { overflow: visible; } table { font-size: .65rem; }
  th, td, td.left, tbody th { min-width: 0; white-space: normal; overflow-wrap: anywhere;
    padding: .2rem .4rem; }
  main, header, footer { max-width: none; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } body { font-size: .85rem; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
""".strip()
