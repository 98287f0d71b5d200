// Send, receive, renew and settle with openapi-fetch and the types that openapi-typescript makes.

import createClient from "openapi-fetch";
import type { components, paths } from "./sdk/peeklock.js";

type Schemas = components["schemas"];

const [url, queue] = process.argv.slice(2) as [string, string];
// A number of JavaScript holds integers up to 2^53. Larger ones are sent as texts.
const properties = {
  text: "007",
  letters: "grün ☕",
  time: "2026-11-24T03:48:19.123456Z",
  small: 17,
  greatest: Number.MAX_SAFE_INTEGER,
  least: Number.MIN_SAFE_INTEGER,
  fraction: 0.1,
  large: 1e300,
  yes: true,
  no: false,
  nothing: null,
};
const body = { order: 17, lines: [{ article: "007", count: 2 }], note: null };

const client = createClient<paths>({ baseUrl: url });
const params = { path: { queue } };
await client.PUT("/v1/queues/{queue}", { params, body: { lock_duration_seconds: 600 } });

async function receive(wanted: Schemas["ReceiveMessages"]): Promise<Schemas["ReceivedMessage"][]> {
  return (await client.POST("/v1/queues/{queue}/messages/receive", { params, body: wanted })).data!.messages;
}

function summary(result: Schemas["SettlementResult"]): string[] {
  switch (result.result) {
    case "settled":
      return [result.result, result.outcome];
    case "refused":
      return [result.result, result.problem.code];
    case "renewed":
      return [result.result];
  }
}

const { data: sent } = await client.POST("/v1/queues/{queue}/messages", { params, body: { body, properties } });
const [received] = await receive({ wait_seconds: 20 });
const lock_token = received.lock_token;
const lock = { params: { path: { queue, lock_token } } };
const { data: renewed } = await client.POST("/v1/queues/{queue}/locks/{lock_token}/renew", {
  ...lock,
  body: { lock_seconds: 3600 },
});
const { data: completed } = await client.POST("/v1/queues/{queue}/locks/{lock_token}/complete", lock);
const { error: problem } = await client.POST("/v1/queues/{queue}/locks/{lock_token}/abandon", lock);

const numbers = [0, 1, 2, 3].map((number) => ({ body: number }));
await client.POST("/v1/queues/{queue}/messages/batch", { params, body: { messages: numbers } });
const tokens = (await receive({ max_messages: 4, wait_seconds: 20 })).map((message) => message.lock_token);
const settlements: Schemas["Settlement"][] = [
  { action: "complete", lock_token: tokens[0] },
  { action: "abandon", lock_token: tokens[1], delay_seconds: 600, properties: { tried: true } },
  { action: "dead_letter", lock_token: tokens[2], reason: "no-such-article" },
  { action: "renew", lock_token: tokens[3], lock_seconds: 60 },
  { action: "defer", lock_token },
];
const { data: settled } = await client.POST("/v1/queues/{queue}/settle", { params, body: { settlements } });

const none = await receive({ wait_seconds: 0.1 });
const waiting = receive({ wait_seconds: 20 });
await client.POST("/v1/queues/{queue}/messages", { params, body: { body: "wake" } });
const [woken] = await waiting;

console.log(
  JSON.stringify({
    same_message: sent!.sequence_number === received.sequence_number,
    properties: received.properties,
    body: received.body,
    renewed: renewed!.lock_remaining_ms > 600_000,
    completed: completed!.outcome,
    problem: [problem!.status, problem!.code, problem!.retryable],
    results: settled!.results.map(summary),
    none: none.length,
    woken: woken.body,
  }),
);
