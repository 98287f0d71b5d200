// Send, receive, renew and settle with the SDK that @hey-api/openapi-ts makes.

import { createClient } from "./sdk/client/index.ts";
import * as sdk from "./sdk/index.ts";
import { at, body, newerUrl, present, properties, queue, url } from "./values.ts";

const client = createClient({ baseUrl: url });
const path = { queue };
const common = { client, path, throwOnError: true } as const;
await sdk.putQueue({ ...common, body: { lock_duration_seconds: 600 } });

async function receive(wanted: sdk.ReceiveMessages): Promise<sdk.ReceivedMessage[]> {
  return (await sdk.receiveMessages({ ...common, body: wanted })).data.messages;
}

function lockOf(message: sdk.ReceivedMessage) {
  return { client, path: { queue, lock_token: message.lock_token }, throwOnError: true } as const;
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
const received = at(await receive({ wait_seconds: 20 }), 0);
const lock = lockOf(received);
const { data: renewed } = await sdk.renewLock({ ...lock, body: { lock_seconds: 3600 } });
const { data: completed } = await sdk.completeLock(lock);
const { error } = await sdk.abandonLock({ ...lock, throwOnError: false });
const problem = present(error);
const newerClient = createClient({ baseUrl: newerUrl });
const { error: unknown } = await sdk.abandonLock({ ...lock, client: newerClient, throwOnError: false });
const newer = present(unknown);

await sdk.sendBatch({ ...common, body: { messages: [0, 1, 2, 3].map((number) => ({ body: number })) } });
const batch = await receive({ max_messages: 4, wait_seconds: 20 });
const settlements: sdk.Settlement[] = [
  { action: "complete", lock_token: at(batch, 0).lock_token },
  { action: "abandon", lock_token: at(batch, 1).lock_token, delay_seconds: 600, properties: { tried: true } },
  { action: "dead_letter", lock_token: at(batch, 2).lock_token, reason: "no-such-article" },
  { action: "renew", lock_token: at(batch, 3).lock_token, lock_seconds: 60 },
  { action: "defer", lock_token: received.lock_token },
];
const { data: settled } = await sdk.settleMessages({ ...common, body: { settlements } });

const none = await receive({ wait_seconds: 0.1 });
const waiting = receive({ wait_seconds: 20 });
await sdk.sendMessage({ ...common, body: { body: "wake" } });
const woken = at(await waiting, 0);
const { data: deadLettered } = await sdk.deadLetterLock({ ...lockOf(woken), body: { reason: "unreadable" } });
const { data: browsed } = await sdk.browseMessages({ ...common, query: { state: ["dead_lettered"] } });

await sdk.sendMessage({ ...common, body: { body: "later" } });
const early = at(await receive({ wait_seconds: 20 }), 0);
const { data: deferred } = await sdk.deferLock(lockOf(early));
const late = at(await receive({ sequence_numbers: [early.sequence_number] }), 0);

const { data: transaction } = await sdk.startTransaction({ client, throwOnError: true });
const transaction_id = transaction.id;
const { data: pending } = await sdk.completeLock({ ...lockOf(late), body: { transaction_id } });
const { data: uncommitted } = await sdk.sendMessage({ ...common, body: { body: "paid", transaction_id } });
const end = { client, path: { transaction_id }, throwOnError: true } as const;
const { data: committed } = await sdk.commitTransaction(end);
const paid = at(await receive({ wait_seconds: 20 }), 0);

console.log(
  JSON.stringify({
    same_message: sent.sequence_number === received.sequence_number,
    properties: received.properties,
    body: received.body,
    renewed: renewed.lock_remaining_ms > 600_000,
    completed: completed.outcome,
    problem: [problem.status, problem.code, problem.retryable],
    results: settled.results.map(summary),
    none: none.length,
    woken: woken.body,
    dead_lettered: deadLettered.outcome,
    browsed: browsed.items.map((message) => [message.body, message.dead_letter_reason]),
    deferred: [deferred.outcome, late.body],
    transaction: [pending.pending, uncommitted.state, committed.state, paid.body],
    newer: [newer.status, newer.code, newer.title, newer.detail, newer.retryable, newer.retry_after],
  }),
);
