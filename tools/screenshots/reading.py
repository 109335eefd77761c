"""Read a drawn board as a person does: the text on the screen, texts over each other, marks over each other."""

from __future__ import annotations

# The texts of each panel that are within the screen, in the order of the page: [[title, text], ...].
SCREEN_TEXT = """
(() => {
  const found = [];
  for (const panel of document.querySelectorAll('[data-viz-panel-key]')) {
    const box = panel.getBoundingClientRect();
    if (!box.width || box.top >= innerHeight || box.bottom <= 0) continue;
    const words = [], walk = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const text = node.textContent.trim();
      if (!text || ['STYLE', 'SCRIPT'].includes(node.parentElement.tagName)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const at = range.getBoundingClientRect();
      const inside = at.bottom <= innerHeight + 2 && at.top >= box.top - 2 && at.bottom <= box.bottom + 2;
      if (at.width && inside) words.push(text);
    }
    const title = panel.querySelector('h2, h6');
    found.push([title ? title.textContent.trim() : '', words.join(' ')]);
  }
  return JSON.stringify(found);
})()
"""
# Grafana's own words for a panel that cannot draw its answer.
UNDRAWN = (
    "Err",
    "Data does not have a time field",
    "Data is missing a",
    "Unable to render data",
    "An unexpected error",
)
# Texts of a panel that cover each other, and squares of a chart of points that are larger than their places.
OVERLAPS = """
(() => {
  const found = new Set();
  const shown = [...document.querySelectorAll('[data-viz-panel-key]')];
  for (const panel of shown) {
    const box = panel.getBoundingClientRect();
    if (box.top >= innerHeight || box.bottom <= 0) continue;
    const title = panel.querySelector('h2, h6'), name = title ? title.textContent.trim() : '';
    const texts = [...panel.querySelectorAll('*')].filter(each =>
      [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()) && each.checkVisibility());
    const boxes = texts.slice(0, 400).map(each => {
      const range = document.createRange();
      range.selectNodeContents(each);
      return [each, range.getBoundingClientRect()];
    }).filter(([, at]) => at.width > 2 && at.right <= box.right && at.bottom <= box.bottom);
    for (let one = 0; one < boxes.length; one++) for (let two = one + 1; two < boxes.length; two++) {
      const [a, left] = boxes[one], [b, right] = boxes[two];
      if (a.contains(b) || b.contains(a)) continue;
      const wide = Math.min(left.right, right.right) - Math.max(left.left, right.left);
      const high = Math.min(left.bottom, right.bottom) - Math.max(left.top, right.top);
      if (wide > 3 && high > 0.4 * Math.min(left.height, right.height)) {
        found.add(`${name}: ${a.textContent.trim().slice(0, 20)} over ${b.textContent.trim().slice(0, 20)}`);
      }
    }
  }
  const scene = window.__grafanaSceneContext;
  const body = scene && scene.state && scene.state.body;
  const all = body && body.getVizPanels ? body.getVizPanels() : [];
  for (const panel of all.filter(each => each.state.pluginId === 'xychart')) {
    const data = panel.state.$data && panel.state.$data.state.data, frame = data && data.series[0];
    const chart = [...document.querySelectorAll('.u-over')].find(each => each.closest('[data-viz-panel-key]')
      && each.closest('[data-viz-panel-key]').textContent.includes(panel.state.title));
    if (!frame || !chart) continue;
    const field = name => frame.fields.find(each => each.name === name);
    const x = field('x') ? [...new Set(field('x').values)].filter(Number.isFinite).sort((a, b) => a - b) : [];
    if (x.length < 3) continue;
    // The ends of the axis are fixed; without them the points fill it.
    const ends = field('x').config, span = (ends.max ?? x[x.length - 1] + 1) - (ends.min ?? x[0] - 1);
    const gap = Math.min(...x.slice(1).map((each, at) => each - x[at]));
    const apart = chart.getBoundingClientRect().width * gap / span;
    for (const each of frame.fields) {
      const size = /^y_(\\d+)$/.exec(each.name);
      if (size && each.values.some(Number.isFinite) && +size[1] > apart + 1) {
        found.add(`${panel.state.title}: squares of ${size[1]} px every ${apart.toFixed(1)} px`);
      }
    }
  }
  return JSON.stringify([...found]);
})()
"""
