// Package body reads and changes the JSON bodies of completion requests without
// decoding them. One scan checks the syntax and finds the few members that the
// gateway needs; members are taken out and put in as bytes, so that everything
// else reaches the engine as the client wrote it: order, numbers of any size,
// escapes, fields that only the engine knows.
//
// It is pure.
package body
