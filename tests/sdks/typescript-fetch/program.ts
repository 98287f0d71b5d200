// Send, receive, renew and settle with the SDK that openapi-generator makes for TypeScript and fetch.

import * as sdk from "./sdk/index.js";
import { at, body, newerUrl, properties, queue, url } from "./values.ts";

const configuration = new sdk.Configuration({ basePath: url });
const messages = new sdk.MessagesApi(configuration);
const locks = new sdk.LocksApi(configuration);
const transactions = new sdk.TransactionsApi(configuration);
await new sdk.QueuesApi(configuration).putQueue({ queue, body: { lockDurationSeconds: 600 } });

async function receive(wanted: sdk.ReceiveMessages): Promise<sdk.ReceivedMessage[]> {
  return (await messages.receiveMessages({ queue, body: wanted })).messages;
}

function lockOf({ lockToken }: sdk.ReceivedMessage) {
  return { queue, lockToken };
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

/** Returns the problem with which the server refuses a request. */
async function refusal(request: Promise<unknown>): Promise<sdk.Problem> {
  try {
    await request;
  } catch (error) {
    if (error instanceof sdk.ResponseError) return sdk.ProblemFromJSON(await error.response.json());
    throw error;
  }
  throw new Error("the server refused nothing");
}

const sent = await messages.sendMessage({ queue, body: { body, properties } });
const received = at(await receive({ waitSeconds: 20 }), 0);
const lock = lockOf(received);
const renewed = await locks.renewLock({ ...lock, body: { lockSeconds: 3600 } });
const completed = await locks.completeLock(lock);
const problem = await refusal(locks.abandonLock(lock));
const newerLocks = new sdk.LocksApi(new sdk.Configuration({ basePath: newerUrl }));
const newer = await refusal(newerLocks.abandonLock(lock));

await messages.sendBatch({ queue, body: { messages: [0, 1, 2, 3].map((number) => ({ body: number })) } });
const batch = await receive({ maxMessages: 4, waitSeconds: 20 });
const settlements: sdk.Settlement[] = [
  { action: "complete", lockToken: at(batch, 0).lockToken },
  { action: "abandon", lockToken: at(batch, 1).lockToken, delaySeconds: 600, properties: { tried: true } },
  { action: "dead_letter", lockToken: at(batch, 2).lockToken, reason: "no-such-article" },
  { action: "renew", lockToken: at(batch, 3).lockToken, lockSeconds: 60 },
  { action: "defer", lockToken: received.lockToken },
];
const { results } = await locks.settleMessages({ queue, body: { settlements } });

const none = await receive({ waitSeconds: 0.1 });
const waiting = receive({ waitSeconds: 20 });
await messages.sendMessage({ queue, body: { body: "wake" } });
const woken = at(await waiting, 0);
const deadLettered = await locks.deadLetterLock({ ...lockOf(woken), body: { reason: "unreadable" } });
const browsed = await messages.browseMessages({ queue, state: ["dead_lettered"] });

await messages.sendMessage({ queue, body: { body: "later" } });
const early = at(await receive({ waitSeconds: 20 }), 0);
const deferred = await locks.deferLock(lockOf(early));
const late = at(await receive({ sequenceNumbers: [early.sequenceNumber] }), 0);

const { id: transactionId } = await transactions.startTransaction();
const pending = await locks.completeLock({ ...lockOf(late), body: { transactionId } });
const uncommitted = await messages.sendMessage({ queue, body: { body: "paid", transactionId } });
const committed = await transactions.commitTransaction({ transactionId });
const paid = at(await receive({ waitSeconds: 20 }), 0);

console.log(
  JSON.stringify({
    same_message: sent.sequenceNumber === received.sequenceNumber,
    properties: received.properties,
    body: received.body,
    renewed: renewed.lockRemainingMs > 600_000,
    completed: completed.outcome,
    problem: [problem.status, problem.code, problem.retryable],
    results: results.map(summary),
    none: none.length,
    woken: woken.body,
    dead_lettered: deadLettered.outcome,
    browsed: browsed.items.map((message) => [message.body, message.deadLetterReason]),
    deferred: [deferred.outcome, late.body],
    transaction: [pending.pending, uncommitted.state, committed.state, paid.body],
    newer: [newer.status, newer.code, newer.title, newer.detail, newer.retryable, newer.retryAfter],
  }),
);
