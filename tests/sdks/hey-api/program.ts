// Send, receive, renew and settle with the SDK that @hey-api/openapi-ts makes.

import { createClient } from "./sdk/client/index.js";
import * as sdk from "./sdk/index.js";

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

const client = createClient({ baseUrl: url });
const path = { queue };
const common = { client, path, throwOnError: true } as const;
await sdk.putQueue({ ...common, body: { lock_duration_seconds: 600 } });

async function receive(wanted: sdk.ReceiveMessages): Promise<sdk.ReceivedMessage[]> {
  return (await sdk.receiveMessages({ ...common, body: wanted })).data.messages;
}

function summary(result: sdk.SettlementResult): string[] {
  switch (result.result) {
    case "settled":
      return [result.result, result.outcome];
    case "refused":
      return [result.result, result.problem.code];
    case "renewed":
      return [result.result];
  }
}

const { data: sent } = await sdk.sendMessage({ ...common, body: { body, properties } });
const [received] = await receive({ wait_seconds: 20 });
const lock_token = received.lock_token;
const lock = { client, path: { queue, lock_token } };
const { data: renewed } = await sdk.renewLock({ ...lock, body: { lock_seconds: 3600 } });
const { data: completed } = await sdk.completeLock(lock);
const { error: problem } = await sdk.abandonLock(lock);

await sdk.sendBatch({ ...common, body: { messages: [0, 1, 2, 3].map((number) => ({ body: number })) } });
const tokens = (await receive({ max_messages: 4, wait_seconds: 20 })).map((message) => message.lock_token);
const settlements: sdk.Settlement[] = [
  { action: "complete", lock_token: tokens[0] },
  { action: "abandon", lock_token: tokens[1], delay_seconds: 600, properties: { tried: true } },
  { action: "dead_letter", lock_token: tokens[2], reason: "no-such-article" },
  { action: "renew", lock_token: tokens[3], lock_seconds: 60 },
  { action: "defer", lock_token },
];
const { data: settled } = await sdk.settleMessages({ ...common, body: { settlements } });

const none = await receive({ wait_seconds: 0.1 });
const waiting = receive({ wait_seconds: 20 });
await sdk.sendMessage({ ...common, body: { body: "wake" } });
const [woken] = await waiting;

console.log(
  JSON.stringify({
    same_message: sent.sequence_number === received.sequence_number,
    properties: received.properties,
    body: received.body,
    renewed: renewed!.lock_remaining_ms > 600_000,
    completed: completed!.outcome,
    problem: [problem!.status, problem!.code, problem!.retryable],
    results: settled.results.map(summary),
    none: none.length,
    woken: woken.body,
  }),
);
