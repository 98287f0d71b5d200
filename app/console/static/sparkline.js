// Small plots in the cells of a table.

export function drawSparks(root) {
  for (const canvas of root.querySelectorAll("canvas.spark")) drawSpark(canvas);
}

export function drawSpark(canvas) {
  const points = canvas.dataset.points.split(",").map(Number);
  const scale = devicePixelRatio || 1;
  const [width, height] = [120, 24];
  if (canvas.width !== width * scale) [canvas.width, canvas.height] = [width * scale, height * scale];
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const highest = Math.max(...points);
  const step = width / points.length;
  pen.fillStyle = getComputedStyle(canvas).color;
  points.forEach((point, index) => {
    const bar = highest ? Math.max((point / highest) * (height - 2), point ? 1.5 : 0) : 0;
    pen.globalAlpha = bar ? 0.85 : 0.35;
    pen.fillRect(index * step, height - (bar || 1), step - 1, bar || 1);
  });
}
