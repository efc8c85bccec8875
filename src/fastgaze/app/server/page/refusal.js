// An error that is said to the user in words.

export class Refusal extends Error {
  constructor(message, retriable = false) {
    super(message);
    this.retriable = retriable;
  }
}
