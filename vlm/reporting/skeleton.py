"""The HTML around the page's content, as a `string.Template`."""

# The policy makes the browser itself refuse any request, whatever a text may smuggle in.
SKELETON = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
$title
<style>
:root {
  color-scheme: light dark;
  --page: #ffffff; --ink: #1c2126; --soft: #59636e; --line: #d8dee4; --raised: #f5f7f9;
  --right: #005f96; --wrong: #a84400; --link: #005f96;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181c; --ink: #e4e8ec; --soft: #9ca7b2; --line: #333b44; --raised: #1c2229;
    --right: #6cbdf0; --wrong: #ff9a57; --link: #6cbdf0;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1200px; padding: 1.5rem 1rem 4rem;
  background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word;
}
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .75rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .75rem; }
h4 { font-size: 1rem; margin: 0 0 .35rem; line-height: 1.3; }
p, figcaption { max-width: 75ch; }
.lead { font-size: 1.1rem; color: var(--soft); margin: 0 0 1rem; }
a { color: var(--link); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
nav a { padding: .25rem 0; }
.scroll, .chart { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .95rem; }
th, td { padding: .35rem .75rem; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: baseline; }
td { white-space: nowrap; }
th { font-weight: 600; }
thead th { color: var(--soft); font-size: .85rem; vertical-align: bottom; }
th:first-child { text-align: left; padding-left: 0; }
tbody th { font-weight: 400; }
figure { margin: 1rem 0 1.5rem; min-width: 0; }
figcaption { color: var(--soft); font-size: .875rem; margin-top: .4rem; }
.chart svg { display: block; width: 100%; min-width: 300px; height: auto; }
.chart text { font-family: system-ui, sans-serif !important; }
.charts { display: grid; gap: 0 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.cards { display: grid; gap: .75rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); }
article { display: flex; gap: .85rem; align-items: flex-start; padding: .75rem; min-width: 0;
  background: var(--raised); border: 1px solid var(--line); border-radius: 6px; }
article img { max-width: 40%; height: auto; flex: none; image-rendering: pixelated;
  border-radius: 3px; }
article > div { min-width: 0; flex: 1; }
.told { font-size: 1.15rem; line-height: 1.45; margin: 0 0 .75rem; }
.told strong { font-size: 1.3rem; }
.change, .attention { flex-direction: column; }
.change > div, .attention > div { flex: none; width: 100%; }
.pair { display: flex; align-items: center; gap: .5rem; }
.pair img { max-width: 44%; }
.arrow::before { content: "→"; color: var(--soft); font-size: 1.25rem; }
.panels { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(6rem, 1fr)); }
.panels figure { margin: 0; }
.panels img { max-width: 100%; width: 128px; }
.panels figcaption { line-height: 1.3; }
small { color: var(--soft); }
dl { display: grid; grid-template-columns: auto 1fr; gap: .1rem .6rem; margin: 0;
  font-size: .875rem; line-height: 1.35; }
dt { color: var(--soft); }
dd { margin: 0; min-width: 0; }
.right { color: var(--right); }
.wrong { color: var(--wrong); font-weight: 600; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
summary { cursor: pointer; padding: .5rem 0; }
pre { overflow-x: auto; padding: 1rem; background: var(--raised); border-radius: 6px;
  font-size: .85rem; line-height: 1.4; }
@media (max-width: 600px) {
  th, td { padding: .35rem .5rem; }
  thead th { white-space: nowrap; }
  tbody th:first-child { min-width: 8.5rem; }
  /* Before above after, and what was said beside them. */
  .change { flex-direction: row; }
  .change > div { flex: 1; width: auto; }
  .change > .pair { flex: none; width: 30%; flex-direction: column; gap: 0; }
  .pair img { max-width: 100%; }
  article > img { max-width: 28%; }
  .arrow::before { content: "↓"; }
  /* The headlines must be readable at a glance: no scrolling, each row a small card. */
  #summary :is(table, tbody, tr, th, td) { display: block; }
  #summary thead { display: none; }
  #summary tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
  #summary tbody th { font-weight: 600; }
  #summary :is(tbody th, td) { border: 0; padding: .1rem 0; }
  #summary td { display: flex; justify-content: space-between; gap: 1rem; }
  #summary td::before { content: attr(data-column); color: var(--soft); }
}
@media print { .scroll, .chart { overflow: visible; } }
</style>
</head>
<body>
<header>
$heading
$lead
$contents
</header>
<main>
$sections
</main>
</body>
</html>
"""
