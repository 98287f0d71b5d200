// The extension lets Node.js run the SDK without a compiler or a bundler.
export default {
  input: "./openapi/openapi.json",
  output: { path: process.env.SDK_DIRECTORY ?? "build/sdk/hey-api", module: { extension: ".ts" } },
  plugins: ["@hey-api/typescript", "@hey-api/sdk", "@hey-api/client-fetch"],
};
