"""How many facts a language model holds that is there already: on disk, or in memory."""
