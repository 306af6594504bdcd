"""One pair or one picture, without an audit."""
