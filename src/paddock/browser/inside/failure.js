'use strict';
// What a model is told when something could not be done; the message has the next step in it.
class Failed extends Error {}

module.exports = { Failed };
