// Send, receive, renew and settle with openapi-fetch and the types that openapi-typescript makes.

import createClient from "openapi-fetch";
import type { components, paths } from "./sdk/peeklock.js";
import { at, body, newerUrl, present, properties, queue, url } from "./values.ts";

type Schemas = components["schemas"];

const client = createClient<paths>({ baseUrl: url });
const params = { path: { queue } };
await client.PUT("/v1/queues/{queue}", { params, body: { lock_duration_seconds: 600 } });

async function receive(wanted: Schemas["ReceiveMessages"]): Promise<Schemas["ReceivedMessage"][]> {
  return present((await client.POST("/v1/queues/{queue}/messages/receive", { params, body: wanted })).data).messages;
}

function lockOf(message: Schemas["ReceivedMessage"]) {
  return { params: { path: { queue, lock_token: message.lock_token } } };
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

async function send(message: Schemas["SendMessage"]) {
  return present((await client.POST("/v1/queues/{queue}/messages", { params, body: message })).data);
}

const sent = await send({ body, properties });
const received = at(await receive({ wait_seconds: 20 }), 0);
const lock = lockOf(received);
const { data: renewed } = await client.POST("/v1/queues/{queue}/locks/{lock_token}/renew", {
  ...lock,
  body: { lock_seconds: 3600 },
});
const { data: completed } = await client.POST("/v1/queues/{queue}/locks/{lock_token}/complete", lock);
const { error } = await client.POST("/v1/queues/{queue}/locks/{lock_token}/abandon", lock);
const problem = present(error);
const newerClient = createClient<paths>({ baseUrl: newerUrl });
const { error: unknown } = await newerClient.POST("/v1/queues/{queue}/locks/{lock_token}/abandon", lock);
const newer = present(unknown);

const numbers = [0, 1, 2, 3].map((number) => ({ body: number }));
await client.POST("/v1/queues/{queue}/messages/batch", { params, body: { messages: numbers } });
const batch = await receive({ max_messages: 4, wait_seconds: 20 });
const settlements: Schemas["Settlement"][] = [
  { action: "complete", lock_token: at(batch, 0).lock_token },
  { action: "abandon", lock_token: at(batch, 1).lock_token, delay_seconds: 600, properties: { tried: true } },
  { action: "dead_letter", lock_token: at(batch, 2).lock_token, reason: "no-such-article" },
  { action: "renew", lock_token: at(batch, 3).lock_token, lock_seconds: 60 },
  { action: "defer", lock_token: received.lock_token },
];
const { data: settled } = await client.POST("/v1/queues/{queue}/settle", { params, body: { settlements } });

const none = await receive({ wait_seconds: 0.1 });
const waiting = receive({ wait_seconds: 20 });
await send({ body: "wake" });
const woken = at(await waiting, 0);
const { data: deadLettered } = await client.POST("/v1/queues/{queue}/locks/{lock_token}/dead-letter", {
  ...lockOf(woken),
  body: { reason: "unreadable" },
});
const { data: browsed } = await client.GET("/v1/queues/{queue}/messages", {
  params: { path: { queue }, query: { state: ["dead_lettered"] } },
});

await send({ body: "later" });
const early = at(await receive({ wait_seconds: 20 }), 0);
const { data: deferred } = await client.POST("/v1/queues/{queue}/locks/{lock_token}/defer", lockOf(early));
const late = at(await receive({ sequence_numbers: [early.sequence_number] }), 0);

const { data: transaction } = await client.POST("/v1/transactions");
const transaction_id = present(transaction).id;
const { data: pending } = await client.POST("/v1/queues/{queue}/locks/{lock_token}/complete", {
  ...lockOf(late),
  body: { transaction_id },
});
const uncommitted = await send({ body: "paid", transaction_id });
const end = { params: { path: { transaction_id } } };
const { data: committed } = await client.POST("/v1/transactions/{transaction_id}/commit", end);
const paid = at(await receive({ wait_seconds: 20 }), 0);

console.log(
  JSON.stringify({
    same_message: sent.sequence_number === received.sequence_number,
    properties: received.properties,
    body: received.body,
    renewed: present(renewed).lock_remaining_ms > 600_000,
    completed: present(completed).outcome,
    problem: [problem.status, problem.code, problem.retryable],
    results: present(settled).results.map(summary),
    none: none.length,
    woken: woken.body,
    dead_lettered: present(deadLettered).outcome,
    browsed: present(browsed).items.map((message) => [message.body, message.dead_letter_reason]),
    deferred: [present(deferred).outcome, late.body],
    transaction: [present(pending).pending, uncommitted.state, present(committed).state, paid.body],
    newer: [newer.status, newer.code, newer.title, newer.detail, newer.retryable, newer.retry_after],
  }),
);
