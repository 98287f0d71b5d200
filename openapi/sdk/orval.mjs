// The SDK reads the address of the server when it sends a request.
export default {
  peeklock: {
    input: new URL("../openapi.json", import.meta.url).pathname,
    output: {
      target: `${process.env.SDK_DIRECTORY ?? new URL("../../build/sdk/orval", import.meta.url).pathname}/peeklock.ts`,
      client: "fetch",
      baseUrl: { runtime: 'process.env["PEEKLOCK_URL"] ?? "http://localhost:8080"' },
      override: { enumGenerationType: "union" },
    },
  },
};
