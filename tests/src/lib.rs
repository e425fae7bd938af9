//! Nothing: the tests are in `suite/`.
