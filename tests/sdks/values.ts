// What the programs in TypeScript share: the message that they send, and two functions that replace assertions of types.

// A number of JavaScript holds integers up to 2^53. Larger ones are sent as texts.
export const properties = {
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
export const body = { order: 17, lines: [{ article: "007", count: 2 }], note: null };

/** Returns a value that must be there. */
export function present<Value>(value: Value | null | undefined): Value {
  if (value === null || value === undefined) throw new Error("a value is missing");
  return value;
}

/** Returns a value of a list that must be long enough. */
export function at<Value>(values: readonly Value[], place: number): Value {
  return present(values[place]);
}

/** The address of the server, the name of a queue, and the address of a server that answers a problem of a newer version. */
export const url = at(process.argv, 2);
export const queue = at(process.argv, 3);
export const newerUrl = at(process.argv, 4);
