// Small plots in the cells of a table. They are drawn when they come into view: hundreds at once would keep the browser busy.

const [WIDTH, HEIGHT] = [120, 24];
const visible = new WeakSet();
const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) visible.delete(target);
      else if (visible.add(target)) draw(target);
    }
  },
  { rootMargin: "200px" },
);
let colour = "";

// Draws all plots, also in new colours.
export function drawSparks(root) {
  colour = "";
  for (const canvas of root.querySelectorAll("canvas.spark")) drawSpark(canvas);
}

export function drawSpark(canvas) {
  observer.observe(canvas);
  if (visible.has(canvas)) draw(canvas);
}

function draw(canvas) {
  const points = canvas.dataset.points.split(",").map(Number);
  const scale = devicePixelRatio || 1;
  if (canvas.width !== WIDTH * scale) [canvas.width, canvas.height] = [WIDTH * scale, HEIGHT * scale];
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, WIDTH, HEIGHT);
  const highest = Math.max(...points);
  const step = WIDTH / points.length;
  // The style of one plot is that of all. Asking for each would lay the page out each time.
  colour ||= getComputedStyle(canvas).color;
  pen.fillStyle = colour;
  points.forEach((point, index) => {
    const bar = highest ? Math.max((point / highest) * (HEIGHT - 2), point ? 1.5 : 0) : 0;
    pen.globalAlpha = bar ? 0.85 : 0.35;
    pen.fillRect(index * step, HEIGHT - (bar || 1), step - 1, bar || 1);
  });
}
