"""The same questions through LangChain: `pip install langchain-openai numpy`. It connects to the given server only,
unless LANGSMITH_TRACING is set.

python with_langchain.py http://127.0.0.1:8000/v1 "What is a collective?" [REPEATED]
"""

import json
import sys

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import OpenAI
from plain import MAX_TOKENS, PROMPT, embed, read_notes, timed


class CountedWords(Embeddings):
    """The vectors of ``plain.py``, with a place for each word of the notes."""

    def __init__(self, texts):
        self.words = sorted({word for text in texts for word in embed(text)})

    def embed_query(self, text):
        counts = embed(text)
        return [float(counts[word]) for word in self.words] + [float(not counts.keys() & set(self.words))]

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


def application(url):
    notes = read_notes()
    store = InMemoryVectorStore(CountedWords([note["text"] for note in notes]))
    store.add_documents([Document(note["text"], metadata={"source": note["source"]}) for note in notes])
    model = OpenAI(base_url=url, api_key="none", model="tinydist", max_tokens=MAX_TOKENS, temperature=0)
    chain = PromptTemplate.from_template(PROMPT) | model | StrOutputParser()

    def ask(question):
        note = store.similarity_search(question, k=1)[0]
        source = note.metadata["source"]
        answer = chain.invoke({"source": source, "text": note.page_content, "question": question})
        return {"answer": answer, "source": source}

    return ask


if __name__ == "__main__":
    url, question, *repeated = sys.argv[1:]
    ask = application(url)
    print(json.dumps(timed(lambda: ask(question), int(*repeated or [0]))))
