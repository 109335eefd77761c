"""Find text that a screen cuts, and panels of the first row that it doesn't show."""

from __future__ import annotations

# Titles, headings of columns, cells, and the names and numbers of tiles are cut where they are wider than their box.
# A table's columns that are scrolled to are no cut text; its box and the map's legend are no text.
CUT_TEXT = """
(() => {
  const titles = '[data-testid^="data-testid Panel header"] h2, [data-testid^="data-testid Panel header"] h6';
  const own = element => [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  const cuts = element => {
    const style = getComputedStyle(element);
    return style.overflowX !== 'visible' && style.overflowX !== 'auto' && style.overflowX !== 'scroll';
  };
  const found = new Set();
  for (const panel of document.querySelectorAll('[data-viz-panel-key]')) {
    const box = panel.getBoundingClientRect();
    if (box.top >= window.innerHeight || box.bottom <= 0) continue;
    const title = panel.querySelector(titles);
    const name = title ? title.textContent : '';
    for (const element of panel.querySelectorAll('*')) {
      if (!own(element) || !element.getBoundingClientRect().width) continue;
      let outer = element;
      // The text itself may be free; the box that cuts it is at most three levels out.
      for (let level = 0; level < 4 && outer && outer !== panel && !cuts(outer); level++) outer = outer.parentElement;
      if (!outer || outer === panel || !cuts(outer)) continue;
      const text = document.createRange();
      text.selectNodeContents(element);
      const wide = text.getBoundingClientRect(), room = outer.getBoundingClientRect();
      if (room.width <= 1 || wide.right <= room.right + 1.5) continue;
      found.add(`${name}: ${element.textContent.trim().slice(0, 40)}`);
    }
  }
  return JSON.stringify([...found]);
})()
"""
# The panels of the first row that begin or end below the screen.
BELOW = """
(() => {
  const boxes = [...document.querySelectorAll('[data-viz-panel-key]')].map(each => each.getBoundingClientRect());
  const top = Math.min(...boxes.map(box => box.top));
  return boxes.filter(box => box.top < top + 5 && box.bottom > window.innerHeight).length;
})()
"""
# Scroll to the next screen, with a part of the last one, and return whether the board had any more.
SCROLL = """
(() => {
  const panel = document.querySelector('[data-viz-panel-key]');
  let outer = panel && panel.parentElement;
  // What the body says of its overflow is the window's.
  while (outer && outer !== document.body && !(outer.scrollHeight > outer.clientHeight + 8
    && ['auto', 'scroll'].includes(getComputedStyle(outer).overflowY))) outer = outer.parentElement;
  const page = outer && outer !== document.body ? outer : document.scrollingElement, before = page.scrollTop;
  page.scrollTo(0, before + 0.8 * window.innerHeight);
  return page.scrollTop > before + 8;
})()
"""
# Grafana remembers in the browser that somebody docked its menu.
DOCK_MENU = "localStorage.setItem('grafana.navigation.docked', 'true')"
