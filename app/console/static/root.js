// The path below which the reader finds the server.
export const root = document.documentElement.dataset.root;
