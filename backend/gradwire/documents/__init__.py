# Generated from the JSON Schemas by `make documents`; never edited.
