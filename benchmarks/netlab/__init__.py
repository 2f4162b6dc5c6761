"""The network lab: real training ranks on hosts joined by slow links, all on one machine."""
