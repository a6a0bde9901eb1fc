"""Files in svmlight's format."""
