// The theme that the reader chose. It runs before the page is drawn, so that the page does not change its colours.
document.documentElement.dataset.theme = localStorage.getItem("theme") ?? "";
