"""The process behind one emulated volume."""
