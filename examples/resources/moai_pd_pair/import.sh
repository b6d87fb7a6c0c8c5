# The pair's name. The next apply registers the pair again, which changes nothing where it is, and verifies it.
terraform import moai_pd_pair.main prefill-0--decode-0
