// The common part of charts: the parts of an SVG, and its colours in light and dark.

export const WIDTH = 800;

export const STYLE = `
    text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #1f2328 }
    .title { font-size: 17px; font-weight: 600 }
    .unit { font-weight: 600 }
    .quiet { fill: #59636e; font-size: 12px }
    .value { font-size: 12px; font-variant-numeric: tabular-nums }
    .halo { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round }
    .back { fill: #ffffff }
    .axis { stroke: #d1d9e0 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .quiet { fill: #9198a1 }
      .back { fill: #0d1117 }
      .halo { stroke: #0d1117 }
      .axis { stroke: #3d444d }
    }`;

/** A picture: its parts, in front of a background; `style` has the colours of the series. */
export function image({ title, description, height, style, parts }) {
  const size = `viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}"`;
  const back = `<rect class="back" width="${WIDTH}" height="${height}" rx="6"/>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img" aria-labelledby="title description">
  <title id="title">${escaped(title)}</title>
  <desc id="description">${escaped(description)}</desc>
  <style>${STYLE}${style}
  </style>
  ${[back, ...parts].join("\n  ")}
</svg>
`;
}

export function box(x, y, width, height, name) {
  return `<rect class="${name}" x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${height}"/>`;
}

export function line(x1, y1, x2, y2, name) {
  return `<line class="${name}" x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}"/>`;
}

export function text(x, y, content, name, anchor) {
  const attributes = [`x="${round(x)}"`, `y="${round(y)}"`];
  if (name) attributes.unshift(`class="${name}"`);
  if (anchor) attributes.push(`text-anchor="${anchor}"`);
  return `<text ${attributes.join(" ")}>${escaped(content)}</text>`;
}

function round(number) {
  return Number(number.toFixed(1));
}

function escaped(content) {
  return content.replace(/&/g, "&amp;").replace(/</g, "&lt;");
}
