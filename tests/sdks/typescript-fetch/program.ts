// Send, receive, renew and settle with the SDK that openapi-generator makes for TypeScript and fetch.

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

const configuration = new sdk.Configuration({ basePath: url });
const messages = new sdk.MessagesApi(configuration);
const locks = new sdk.LocksApi(configuration);
await new sdk.QueuesApi(configuration).putQueue({ queue, body: { lockDurationSeconds: 600 } });

async function receive(wanted: sdk.ReceiveMessages): Promise<sdk.ReceivedMessage[]> {
  return (await messages.receiveMessages({ queue, body: wanted })).messages;
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

const sent = await messages.sendMessage({ queue, body: { body, properties } });
const [received] = await receive({ waitSeconds: 20 });
const lockToken = received.lockToken;
const renewed = await locks.renewLock({ queue, lockToken, body: { lockSeconds: 3600 } });
const completed = await locks.completeLock({ queue, lockToken });
const problem = await locks.abandonLock({ queue, lockToken }).then(
  () => undefined,
  async (error: unknown) =>
    error instanceof sdk.ResponseError ? sdk.ProblemFromJSON(await error.response.json()) : Promise.reject(error),
);

await messages.sendBatch({ queue, body: { messages: [0, 1, 2, 3].map((number) => ({ body: number })) } });
const tokens = (await receive({ maxMessages: 4, waitSeconds: 20 })).map((message) => message.lockToken);
const settlements: sdk.Settlement[] = [
  { action: "complete", lockToken: tokens[0] },
  { action: "abandon", lockToken: tokens[1], delaySeconds: 600, properties: { tried: true } },
  { action: "dead_letter", lockToken: tokens[2], reason: "no-such-article" },
  { action: "renew", lockToken: tokens[3], lockSeconds: 60 },
  { action: "defer", lockToken },
];
const { results } = await locks.settleMessages({ queue, body: { settlements } });

const none = await receive({ waitSeconds: 0.1 });
const waiting = receive({ waitSeconds: 20 });
await messages.sendMessage({ queue, body: { body: "wake" } });
const [woken] = await waiting;

console.log(
  JSON.stringify({
    same_message: sent.sequenceNumber === received.sequenceNumber,
    properties: received.properties,
    body: received.body,
    renewed: renewed.lockRemainingMs > 600_000,
    completed: completed.outcome,
    problem: [problem?.status, problem?.code, problem?.retryable],
    results: results.map(summary),
    none: none.length,
    woken: woken.body,
  }),
);
